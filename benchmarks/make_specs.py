"""Write model_specs/*.yaml: the importer's reading of every config that spec_sources.yaml names.

python benchmarks/make_specs.py REFERENCE_DATA_FOLDER [OUTPUT_FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kvplan.catalog import dump_model
from kvplan.hf import spec_from_config
from kvplan.model import ModelSpec

HERE = Path(__file__).parent
SOURCES = HERE / "spec_sources.yaml"
HUB = "https://huggingface.co/{id}/blob/main/config.json"


def sources() -> dict[str, dict[str, Any]]:
    """Bundled name -> where its config comes from."""
    entries: dict[str, dict[str, Any]] = yaml.safe_load(SOURCES.read_text())
    return entries


def specs(folder: Path) -> Iterator[ModelSpec]:
    """One spec for each bundled name; `folder` holds the reference data."""
    origins = _origins(folder)
    for name, entry in sources().items():
        yield _spec(name, entry, folder, origins)


def _spec(name: str, entry: Mapping[str, Any], folder: Path, origins: Mapping[str, tuple[str, str]]) -> ModelSpec:
    file = entry["config"]
    config = json.loads((folder / file).read_text()) if isinstance(file, str) else file
    config = {k: v for k, v in {**config, **entry.get("with", {})}.items() if k not in entry.get("without", ())}
    quant = _quant_file(folder, file) if config.keys() & {"quantization_config"} else None
    spec = spec_from_config(config, name=name, source=name, quant=quant)
    ids = [i for i in (entry["id"], *entry.get("hub_ids", ())) if i]
    return replace(spec, source=_source(entry, origins), hub_ids=tuple(ids))


def _quant_file(folder: Path, file: Any) -> Mapping[str, Any] | None:
    """hf_quant_config.json of a file of the reference data, which lie in one folder."""
    beside = folder / "hf_configs" / "hf_quant_config" / Path(file).name if isinstance(file, str) else folder / "none"
    quant: Mapping[str, Any] | None = json.loads(beside.read_text()) if beside.is_file() else None
    return quant


def _origins(folder: Path) -> dict[str, tuple[str, str]]:
    """File of the reference data -> the repository that it is of, and the public place that it was read from."""
    truth = folder / "hf_configs" / "TRUTH.yaml"
    entries = yaml.load(truth.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {f"hf_configs/{e['file']}": (e["model_id"], e["source"].split(" (")[0]) for e in entries}


def _source(entry: Mapping[str, Any], origins: Mapping[str, tuple[str, str]]) -> str:
    """The hub's address, and where the file was read from, whose repository is named if it is another."""
    if "source" in entry:
        return str(entry["source"])
    hub, file = HUB.format(id=entry["id"]), entry["config"]
    if not isinstance(file, str) or file not in origins:
        return hub
    model_id, place = origins[file]
    if not place.startswith(("github:", "pypi:")) or " " in place:
        return f"{hub}; rebuilt from the published architecture"
    return f"{hub}; read from {place}" + ("" if model_id == entry["id"] else f" ({model_id})")


def main() -> None:
    """Write every spec, and remove those that no source names any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="reference data folder with the configs")
    parser.add_argument("target", type=Path, nargs="?", default=HERE.parent / "model_specs")
    arguments = parser.parse_args()
    target: Path = arguments.target
    target.mkdir(exist_ok=True)
    written = set()
    for spec in specs(arguments.data):
        dump_model(spec, target / f"{spec.name}.yaml")
        written.add(f"{spec.name}.yaml")
    for old in target.glob("*.yaml"):
        if old.name not in written:
            old.unlink()
    print(f"{len(written)} specs in {target}")


if __name__ == "__main__":
    main()
