"""The models of observed_models.yaml as specs: published configs, those of the reference data, and changes to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvplan.hf.importer import spec_from_config
from kvplan.model import ModelSpec

FILE = Path(__file__).with_name("observed_models.yaml")


@dataclass(frozen=True, slots=True)
class Model:
    """One entry: its spec, and whether only the geometry of its cache is known."""

    spec: ModelSpec
    cache_only: bool


class Models:
    """Entries by the words that rows use; specs are read when they are asked for. `folder`: the reference data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        entries = yaml.safe_load(FILE.read_text())["models"]
        self.entries: dict[str, dict[str, Any]] = {e["name"]: e for e in entries}
        self.names = {text: name for name, e in self.entries.items() for text in [*e.get("rows", ()), *e.get("ids", ())]}
        self._read: dict[str, Model] = {}

    def find(self, row_id: str, text: str | None) -> Model | None:
        """The entry for a row, by its id or its words; None where neither says enough."""
        name = self.names.get(row_id) or self.names.get(text or "")
        if name is None:
            return None
        if name not in self._read:
            entry = self.entries[name]
            spec = spec_from_config(self.config(name), name=name, source=entry["source"])
            self._read[name] = Model(spec, bool(entry.get("cache_only")))
        return self._read[name]

    def config(self, name: str) -> dict[str, Any]:
        """An entry's config.json."""
        entry = self.entries[name]
        if "like" in entry:
            config = self.config(entry["like"])
        elif "file" in entry:
            config = json.loads((self.folder / entry["file"]).read_text())
        else:
            config = dict(entry["config"])
        for path, value in entry.get("change", {}).items():
            change(config, path.split("."), value)
        return config


def change(config: dict[str, Any], path: list[str], value: Any) -> None:
    """Set one field in place; None removes it."""
    *outer, last = path
    for key in outer:
        config[key] = config = dict(config[key])
    if value is None:
        config.pop(last, None)
    else:
        config[last] = _layer_types(value) if last == "layer_types" else value


def _layer_types(value: Mapping[str, int] | list[str]) -> list[str]:
    """`{five_sliding_then_full: 48}` -> 48 names, every sixth full."""
    if isinstance(value, list):
        return value
    return [("full" if i % 6 == 5 else "sliding") + "_attention" for i in range(value["five_sliding_then_full"])]
