"""kvplan.formats.csv."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvplan.formats.csv import render
from kvplan.table import Column, Document, Quantity, Section, Table

COLUMNS = (Column("model", "Model"), Column("bytes", "Size", "bytes"), Column("saving", "Saving", "percent"))
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"))
ROWS = st.lists(st.tuples(TEXT, st.integers(), st.floats(allow_nan=False, allow_infinity=False)))


def read(text: str) -> list[list[str]]:
    """Through the csv module, as a spreadsheet does."""
    return list(csv.reader(io.StringIO(text)))


@given(ROWS)
def test_one_table_is_plain_csv_with_keys_and_raw_values(rows: list[tuple[Any, ...]]) -> None:
    head, *lines = read(render(Document("x", [Table("t", COLUMNS, rows)], {})))

    assert head == ["model", "bytes", "saving"]
    assert [(model, int(size), float(saving)) for model, size, saving in lines] == rows


def test_unknown_is_empty_and_truth_is_a_word() -> None:
    table = Table("t", (Column("a", "A"), Column("b", "B"), Column("c", "C", "bool")), [(None, math.nan, True)])

    assert render(Document("x", [table], {})) == "a,b,c\n,,true\n"


def test_several_tables_stand_under_their_titles() -> None:
    first, second = Table("One", COLUMNS[:1], [("a",)]), Table("Two", COLUMNS[:1], [("b",)])
    document = Document("x", [first], {}, sections=[Section("s", tables=[second])])

    assert render(document) == "# One\nmodel\na\n\n# Two\nmodel\nb\n"


def test_own_units_get_a_column_of_their_own() -> None:
    rows = [("kv_tokens", Quantity(562240, "tokens")), ("step", Quantity(0.01934, "s")), ("note", "none")]
    table = Table("t", (Column("quantity", "Quantity"), Column("value", "Value")), rows)

    assert read(render(Document("x", [table], {}))) == [
        ["quantity", "value", "value_unit"],
        ["kv_tokens", "562240", "tokens"],
        ["step", "0.01934", "s"],
        ["note", "none", ""],
    ]
