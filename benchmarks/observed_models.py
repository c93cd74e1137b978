"""The models of observed_models.yaml: bundled specs, with the quantization of the copy that a row is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kvplan.catalog import load_model
from kvplan.hf.quantization import quantization
from kvplan.model import LayerGroup, ModelSpec
from kvplan.plain import from_plain

FILE = Path(__file__).with_name("observed_models.yaml")


@dataclass(frozen=True, slots=True)
class Model:
    """A spec, and whether only the geometry of its cache is known."""

    spec: ModelSpec
    cache_only: bool


@cache
def entries() -> Mapping[str, Any]:
    """The file."""
    content: Mapping[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def stated(row_id: str) -> Mapping[str, Any]:
    """Fields that a row states in words."""
    facts: Mapping[str, Any] = entries()["stated"].get(row_id, {})
    return facts


def miss(check: str, row_id: str) -> Mapping[str, Any]:
    """What is known of why a check misses a row: `why`, `assume`."""
    known: Mapping[str, Any] = entries()["misses"][check].get(row_id, {})
    return known


def find_model(row_id: str, words: str | None) -> Model | None:
    """The model of a row, by its id or its words; None where neither says enough."""
    for index, entry in enumerate(entries()["models"]):
        if row_id in entry.get("ids", ()):
            return _model(index)
    for index, entry in enumerate(entries()["models"]):
        if words in entry["rows"]:
            return _model(index)
    return None


@cache
def _model(index: int) -> Model:
    entry = entries()["models"][index]
    if "layers" in entry:
        return Model(_cache_spec(entry), cache_only=True)
    spec = load_model(entry["model"])
    if "dtype" in entry:
        spec = replace(spec, torch_dtype=entry["dtype"])
    if "quantization" in entry:
        copy = entry["quantization"]
        found = None if copy == "none" else quantization(({"quantization_config": copy},), None, entry["model"])
        spec = replace(spec, quantization=found)
    return Model(spec, bool(entry.get("cache_only")))


def _cache_spec(entry: Mapping[str, Any]) -> ModelSpec:
    """A spec of which only the layers' caches mean anything."""
    groups = ({"layers": g["layers"], "attention": [g["attention"]]} for g in entry["layers"])
    return ModelSpec(
        name=entry["rows"][0], source=entry["source"], model_type="cache only", torch_dtype="bfloat16", hidden_size=1,
        vocab_size=1, max_position_embeddings=None,
        layer_groups=tuple(from_plain(LayerGroup, g) for g in groups),
    )  # fmt: skip
