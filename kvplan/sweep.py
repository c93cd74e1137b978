"""Many scenarios in one process: a list of them, or a grid, from one YAML file.

A scenario that fails carries its error in one line and the rest still run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from kvplan.budget import MEASURABLE
from kvplan.errors import BadInput, KvplanError, UnknownName
from kvplan.plan import Plan, Scenario, plan
from kvplan.units import parse_bytes, parse_tokens

MAX_SCENARIOS = 1_000_000
MAX_FILE_BYTES = 64 * 2**20
_KEYS = frozenset(f.name for f in fields(Scenario)) | {"id"}
_SIZES = frozenset({"kv_pool_bytes"})
_COUNTS = ("gpus", "tp", "pp", "dp", "dcp", "ep", "max_num_seqs", "max_num_batched_tokens", "block_size")


@dataclass(frozen=True, slots=True)
class Result:
    """One scenario's plan, or the one line that says why there is none."""

    id: str
    plan: Plan | None
    error: str | None


def read_scenarios(path: Path) -> list[dict[str, Any]]:
    """The scenarios of a sweep file as plain mappings with their `id`, defaults filled in.

    `{defaults: {...}, scenarios: [{...}]}` or `{defaults: {...}, grid: {tp: [1, 2], context: [4k, 32k]}}`.
    """
    from kvplan.files import read_bytes
    from kvplan.strict_yaml import parse

    content = parse(read_bytes(path, MAX_FILE_BYTES), str(path))
    if not isinstance(content, dict):
        raise BadInput(f"{path}: a sweep is a mapping of defaults, and scenarios or a grid")
    for key in content:
        if key not in {"defaults", "scenarios", "grid"}:
            raise UnknownName.of("key", str(key), ("defaults", "scenarios", "grid"), where=f"{path}: ")
    defaults = _mapping(content.get("defaults") or {}, f"{path}: defaults")
    rows = [*_listed(content.get("scenarios"), path), *_grid(content.get("grid"), path)]
    if not rows:
        raise BadInput(f"{path}: no scenarios; give `scenarios:` (a list) or `grid:` (lists by key)")
    return [{"id": str(i), **defaults, **row} for i, row in enumerate(rows)]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: {value!r} is not a mapping of scenario keys")
    for key in value:
        if key not in _KEYS:
            raise UnknownName.of("scenario key", str(key), _KEYS, where=f"{where}: ")
    return value


def _listed(value: Any, path: Path) -> Iterator[dict[str, Any]]:
    if value is not None and not isinstance(value, list):
        raise BadInput(f"{path}: scenarios: {value!r} is not a list")
    for i, row in enumerate(value or ()):
        yield _mapping(row, f"{path}: scenarios[{i}]")


def _grid(value: Any, path: Path) -> Iterator[dict[str, Any]]:
    """Every combination, the last key fastest."""
    if value is None:
        return
    axes = _mapping(value, f"{path}: grid")
    lists = [v if isinstance(v, list) else [v] for v in axes.values()]
    count = 1
    for axis in lists:
        count *= len(axis)
    if count > MAX_SCENARIOS:
        raise BadInput(f"{path}: grid: {count:,} scenarios; at most {MAX_SCENARIOS:,}")
    for values in product(*lists):
        yield dict(zip(axes, values, strict=True))


def read_scenario(row: Mapping[str, Any]) -> Scenario:
    """A plain mapping -> Scenario: names looked up, sizes and lengths read with their units."""
    from kvplan.catalog import load_gpu, load_model

    for key in ("model", "gpu"):
        if not isinstance(row.get(key), str):
            raise BadInput(f"{key}: {row.get(key)!r}; a scenario needs the name of a {key}")
    values = {k: v for k, v in row.items() if k != "id" and v is not None}
    values["model"], values["gpu"] = load_model(row["model"]), load_gpu(row["gpu"])
    if "context" in values:
        values["context"] = parse_tokens(values["context"])
    if "kv_pool_bytes" in values:
        values["kv_pool_bytes"] = parse_bytes(values["kv_pool_bytes"], where="kv_pool_bytes")
    for key in _COUNTS:
        if key in values and (type(values[key]) is not int or not 1 <= values[key] <= 2**40):
            raise BadInput(f"{key}: {values[key]!r} is not a whole number above 0")
    share = values.get("gpu_memory_utilization")
    if share is not None and not (type(share) in {int, float} and 0 < share <= 1):
        raise BadInput(f"gpu_memory_utilization: {share!r} is not a share between 0 and 1")
    _check_mappings(values)
    for key in ("engine", "kv_dtype"):
        if not isinstance(values.get(key, ""), str):
            raise BadInput(f"{key}: {values[key]!r} is not a name")
    return Scenario(**values)


def _check_mappings(values: dict[str, Any]) -> None:
    """Engine flags and measured lines are mappings; a measured line has a known label and a size."""
    for key in ("engine_args", "given_bytes"):
        if not isinstance(values.get(key, {}), dict):
            raise BadInput(f"{key}: {values[key]!r} is not a mapping")
    for label in values.get("given_bytes", {}):
        if label not in MEASURABLE:
            raise UnknownName.of("budget line", str(label), MEASURABLE, where="given_bytes: ")
    values["given_bytes"] = {
        k: parse_bytes(v, where=f"given_bytes: {k}") for k, v in values.get("given_bytes", {}).items()
    }


def run(rows: list[dict[str, Any]]) -> Iterator[Result]:
    """Results in order, as they are found."""
    for row in rows:
        name = str(row["id"])
        try:
            yield Result(name, plan(read_scenario(row)), None)
        except KvplanError as error:
            yield Result(name, None, " ".join(str(error).split()))
