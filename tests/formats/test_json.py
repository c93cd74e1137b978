"""kvplan.formats.json."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.formats.json import render
from kvplan.table import Document

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=30), inner, max_size=4),
    max_leaves=30,
)


def rendered(payload: Any, notes: tuple[str, ...] = ()) -> Any:
    """What a strict program reads."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(render(Document("x", (), payload, notes=notes)), parse_constant=refuse)


@given(VALUES)
def test_every_value_comes_back_exactly(value: Any) -> None:
    assert rendered({"value": value})["value"] == value


def test_bytes_stay_whole_beyond_what_a_double_holds() -> None:
    assert '"bytes": 4611686018427387905' in render(Document("x", (), {"bytes": 2**62 + 1}))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(value: float) -> None:
    assert rendered({"a": [value], "b": {"c": value}}) == {"a": [None], "b": {"c": None}, "notes": []}


def test_notes_are_added_and_those_of_the_payload_kept() -> None:
    assert rendered({}, notes=("a",)) == {"notes": ["a"]}
    assert rendered({"notes": ["own"]}, notes=("a",)) == {"notes": ["own"]}


def test_what_fits_in_a_line_stays_on_one() -> None:
    payload = {"command": "compare", "rows": [{"model": "m", "tp": tp} for tp in (1, 2)], "text": "x" * 80}

    assert render(Document("x", (), payload)) == (
        '{\n  "command": "compare",\n  "rows": [{"model": "m", "tp": 1}, {"model": "m", "tp": 2}],\n'
        f'  "text": "{"x" * 80}",\n  "notes": []\n}}\n'
    )


def test_a_long_list_has_one_item_a_line() -> None:
    payload = {"rows": [{"name": "x" * 40, "tp": tp} for tp in (1, 2, 4)]}

    assert render(Document("x", (), payload)).splitlines()[2] == f'    {{"name": "{"x" * 40}", "tp": 1}},'
