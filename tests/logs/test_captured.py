"""Every captured log says exactly what its entry in the index says, no more and no less."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.logs import read_log
from kvplan.logs.observed import Observed, Pool, Reading
from kvplan.units import GIB, MIB

CAPTURED = Path(__file__).parent / "captured"
INDEX = yaml.safe_load((CAPTURED / "index.yaml").read_text())
_SCALES = {"GiB": GIB, "MiB": MIB}


def _value(printed: Any) -> Any:
    """`8.11 GiB` as the bytes nearest to it, a list as a tuple, anything else as it is."""
    if isinstance(printed, list):
        return tuple(printed)
    number, _, unit = printed.partition(" ") if isinstance(printed, str) else (printed, "", "")
    return round(float(number) * _SCALES[unit]) if unit in _SCALES else printed


def _readings(entry: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    ranks = {n: by if isinstance(by, dict) else {"": by} for n, by in entry.get("readings", {}).items()}
    return {(name, rank): _value(printed) for name, by in ranks.items() for rank, printed in by.items()}


def _pool(pool: Pool) -> dict[str, Any]:
    """The fields of a pool that are set."""
    fields = {name: getattr(pool, name) for name in Pool.__slots__ if name not in ("line", "parts", "total")}
    sizes = {f"{name}_bytes": reading.value for name, reading in pool.parts.items()}
    total = {"total": pool.total.value} if pool.total else {}
    return {name: value for name, value in fields.items() if value not in (None, "", 0, {})} | sizes | total


def _compared(observed: Observed) -> dict[str, Any]:
    return {
        "engine": observed.engine,
        "version": observed.version,
        "model": observed.model,
        "flags": dict(observed.flags),
        "metadata": dict(observed.metadata),
        "readings": {(reading.name, reading.rank): reading.value for reading in observed.readings},
        "pools": [_pool(pool) for pool in observed.pools],
        "notes": list(observed.notes),
    }


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["log"])
def test_a_captured_log_says_what_its_index_entry_says(entry: dict[str, Any]) -> None:
    expected = {
        "engine": entry["engine"],
        "version": entry.get("version"),
        "model": entry.get("model"),
        "flags": entry.get("flags", {}),
        "metadata": entry.get("metadata", {}),
        "readings": _readings(entry),
        "pools": [{n: _value(v) for n, v in pool.items()} for pool in entry.get("pools", [])],
        "notes": entry.get("notes", []),
    }

    assert _compared(read_log(CAPTURED / entry["log"])) == expected


def test_every_log_of_the_folder_is_in_the_index_and_has_a_source() -> None:
    assert {entry["log"] for entry in INDEX} == {p.name for p in CAPTURED.iterdir() if p.name != "index.yaml"}
    assert all(entry["source"] for entry in INDEX)
    assert len(INDEX) >= 40


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["log"])
def test_every_reading_names_the_line_that_states_it(entry: dict[str, Any]) -> None:
    observed = read_log(CAPTURED / entry["log"])
    lines = [reading.line for reading in (*observed.readings, *_parts(observed))]

    assert min(lines) >= 1
    assert [pool.line for pool in observed.pools] == sorted(pool.line for pool in observed.pools)


def _parts(observed: Observed) -> list[Reading]:
    return [reading for pool in observed.pools for reading in pool.parts.values()]
