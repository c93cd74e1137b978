"""kvplan.formats._cells: one text for a value, wherever people read it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kvplan.formats._cells import UNKNOWN, plain, raw, spans, text_columns
from kvplan.table import Column, Quantity, Table, Unit

KIB, MIB, GIB = 2**10, 2**20, 2**30


def column(unit: Unit, *values: Any) -> tuple[str, list[str]]:
    """Head unit and cells of a table of one column."""
    [text] = text_columns(Table("", (Column("key", "Title", unit),), [(value,) for value in values]))
    return text.unit, list(text.cells)


@pytest.mark.parametrize(
    ("unit", "values", "head", "cells"),
    [
        ("bytes", [70272, 327680], "KiB", ["68.62", "320.00"]),
        ("bytes", [287834112, 40 * GIB], "GiB", ["0.268", "40.000"]),
        ("bytes", [8 * GIB, 40 * GIB], "GiB", ["8", "40"]),
        ("bytes", [0, 3 * GIB // 2], "GiB", ["0", "1.50"]),
        ("bytes", [512, 4096], "B", ["512", "4,096"]),
        ("bytes", [70272, 40 * GIB], "", ["68.62 KiB", "40.00 GiB"]),
        ("exact_bytes", [70272, 1152.5], "B", ["70,272", "1,152.50"]),
        ("tokens", [131072, 5000], "tokens", ["128k", "5,000"]),
        ("count", [1127011, 34.5], "", ["1,127,011", "34.50"]),
        ("percent", [0.98242, -0.1], "", ["98.24%", "-10.00%"]),
        ("ratio", [4.289], "", ["4.29×"]),
        ("bool", [True, False], "", ["yes", "no"]),
        ("s", [0.01934, 0.5], "ms", ["19.34", "500.00"]),
        ("s", [3.66e-5, 20.0], "", ["36.6 µs", "20.0 s"]),
        ("bytes_per_s", [4.8e12, 864e9], "TB/s", ["4.800", "0.864"]),
        ("flops_per_s", [989e12, 1.9e12], "TFLOP/s", ["989.00", "1.90"]),
        ("flops", [2.5e9], "GFLOP", ["2.50"]),
        ("tokens_per_s", [1234.4, 0.034], "tokens/s", ["1,234", "0.0340"]),
        ("text", ["mla", 7], "", ["mla", "7"]),
    ],
)
def test_a_column_shares_one_unit_where_that_reads_well(
    unit: Unit, values: list[Any], head: str, cells: list[str]
) -> None:
    assert column(unit, *values) == (head, cells)


def test_columns_of_the_same_unit_have_the_same_decimals() -> None:
    columns = (Column("size", "Size", "bytes"), Column("low", "Low", "bytes"))
    size, low = text_columns(Table("", columns, [(3 * GIB // 2, GIB // 4)]))

    assert (size.cells, low.cells) == (("1.500",), ("0.250",))


@pytest.mark.parametrize("value", [None, math.nan, math.inf, Quantity(None, "bytes"), Quantity(math.nan, "count")])
@pytest.mark.parametrize("unit", ["bytes", "text", "tokens", "s", "percent"])
def test_what_is_unknown_is_a_dash(unit: Unit, value: Any) -> None:
    assert column(unit, value) == (column(unit)[0], [UNKNOWN])


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (562240, "tokens", "562,240 tokens"),
        (70272, "bytes", "68.62 KiB"),
        (70272, "exact_bytes", "70,272 B"),
        (0.01934, "s", "19.3 ms"),
        (4.8e12, "bytes_per_s", "4.80 TB/s"),
        (1200.0, "tokens_per_s", "1,200 tokens/s"),
        (0.62, "percent", "62.00%"),
        (True, "bool", "yes"),
    ],
)
def test_a_cell_with_its_own_unit_carries_it(value: Any, unit: Unit, text: str) -> None:
    assert column("text", Quantity(value, unit)) == ("", [text])


def test_a_column_of_own_units_is_set_as_numbers() -> None:
    [text] = text_columns(Table("", (Column("value", "Value"),), [(Quantity(1, "count"),), ("n/a",)]))

    assert text.is_number


def test_rows_of_the_wrong_length_are_a_bug_and_fail() -> None:
    with pytest.raises(ValueError, match="zip"):
        text_columns(Table("", (Column("a", "A"), Column("b", "B")), [(1, 2), (1,)]))


@pytest.mark.parametrize(
    ("cell", "value"), [(7, 7), (2**62, 2**62), (math.inf, None), (Quantity(5, "bytes"), 5), (False, False)]
)
def test_programs_get_the_bare_value(cell: Any, value: Any) -> None:
    assert raw(cell) is value or raw(cell) == value


def test_text_is_cut_into_words_code_and_addresses() -> None:
    text = "use `--tp 8`, see (https://example.org/a_b#c). End `open"

    assert list(spans(text)) == [
        ("use ", "text"), ("--tp 8", "code"), (", see (", "text"), ("https://example.org/a_b#c", "url"),
        ("). End `open", "text"),
    ]  # fmt: skip
    assert plain(text) == "use --tp 8, see (https://example.org/a_b#c). End `open"
