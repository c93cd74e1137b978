"""kvplan.formats: which formats there are, what they all must do, and how an answer is written."""

from __future__ import annotations

import importlib
import subprocess
import sys
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import formats
from kvplan.errors import UnknownName
from kvplan.formats._cells import text_columns
from kvplan.table import Column, Document, Section, Table, Unit

WORD = st.from_regex(r"[a-z][a-z0-9.-]{0,12}[a-z0-9]", fullmatch=True)
VALUES: dict[Unit, st.SearchStrategy[Any]] = {
    "text": WORD,
    "bytes": st.integers(0, 2**50),
    "exact_bytes": st.integers(0, 2**50),
    "tokens": st.integers(1, 2**30),
    "percent": st.floats(-1, 1),
    "s": st.floats(1e-9, 1e3),
    "bytes_per_s": st.floats(1e9, 1e13),
    "bool": st.booleans(),
}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Up to ten columns of any unit, with gaps."""
    units = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=10))
    rows = st.tuples(*(st.none() | VALUES[unit] for unit in units))
    columns = tuple(Column(f"key_{number}", f"Title {number}", unit) for number, unit in enumerate(units))
    return Table("Title", columns, draw(st.lists(rows, max_size=4)), index_columns=draw(st.integers(0, 2)))


def test_every_module_of_the_folder_is_a_format() -> None:
    assert formats.names() == ["csv", "html", "json", "markdown", "table"]


@pytest.mark.parametrize("name", formats.names())
def test_every_format_exports_what_the_others_do(name: str, report: Document) -> None:
    module = importlib.import_module(f"kvplan.formats.{name}")

    assert all(suffix.startswith(".") and suffix.islower() for suffix in module.SUFFIXES)
    assert isinstance(module.NOTES, bool)
    assert module.render(report) == formats.render(report, name)
    assert module.render(report).endswith("\n")


def test_no_suffix_belongs_to_two_formats() -> None:
    suffixes = [s for n in formats.names() for s in importlib.import_module(f"kvplan.formats.{n}").SUFFIXES]

    assert len(suffixes) == len(set(suffixes))


@pytest.mark.parametrize("name", ["table", "markdown", "html"])
@given(table=tables())
def test_every_cell_is_shown_in_every_format_for_people(name: str, table: Table) -> None:
    document = Document("x", (), {}, sections=[Section("Part", tables=[table])])
    text = unescape(formats.render(document, name, formats.Screen(80)))

    for column in text_columns(table):
        assert column.unit in text
        assert all(cell in text for cell in column.cells)


@given(table=tables())
def test_every_value_is_in_csv_exactly(table: Table) -> None:
    lines = formats.render(Document("x", [table], {}), "csv").splitlines()[1:]

    for line, row in zip(lines, table.rows, strict=True):
        expected = ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in row]
        assert line == (",".join(expected) or '""')


@pytest.mark.parametrize("name", formats.names())
def test_the_same_document_gives_the_same_text(name: str, report: Document) -> None:
    assert formats.render(report, name) == formats.render(report, name)


def test_an_unknown_names_the_known_ones(compare: Document) -> None:
    with pytest.raises(UnknownName, match="unknown format 'jsn'; did you mean json"):
        formats.render(compare, "jsn")


LOADED = """
import sys
from kvplan.formats import render
from kvplan.table import Document
render(Document("x", (), {}), sys.argv[1])
print(*sys.modules)
"""


@pytest.mark.parametrize(("name", "loads_rich"), [("json", False), ("html", False), ("table", True)])
def test_only_the_terminal_pays_for_rich(name: str, loads_rich: bool) -> None:
    run = subprocess.run([sys.executable, "-c", LOADED, name], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())

    assert ("rich" in loaded) is loads_rich
    assert not loaded & {"numpy", "pydantic", "yaml", "matplotlib", "pygments"}
