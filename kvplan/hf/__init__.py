"""Hugging Face `config.json` -> `ModelSpec`: find the decoder, normalise names, rules per family, refuse the rest."""

from __future__ import annotations

from kvplan.hf.importer import import_config, spec_from_config

__all__ = ["import_config", "spec_from_config"]
