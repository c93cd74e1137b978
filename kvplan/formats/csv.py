"""CSV for spreadsheets: raw, exact values under the keys that programs use.

A single table is plain CSV. Where there are more, each stands under a line `# its title`, with an empty line between.
Unknown is an empty cell. A column whose cells have their own units is followed by one that names them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from kvplan.formats._cells import raw
from kvplan.formats._screen import PAPER, Screen
from kvplan.table import Document, Quantity, Table

SUFFIXES = (".csv",)
NOTES = False


def render(document: Document, _: Screen = PAPER, /) -> str:
    """All tables of the document, those of its sections included."""
    tables = [table for section in document.parts for table in section.tables]
    if len(tables) == 1:
        return _csv(tables[0])
    return "\n".join(f"# {table.title}\n{_csv(table)}" for table in tables)


def _csv(table: Table) -> str:
    paper = io.StringIO()
    by_column = zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns)
    pairs = zip(table.columns, by_column, strict=True)
    lines = [line for column, cells in pairs for line in _down(column.key, cells)]
    csv.writer(paper, lineterminator="\n").writerows(zip(*lines, strict=True))
    return paper.getvalue()


def _down(key: str, cells: Sequence[Any]) -> Iterator[list[Any]]:
    """A column's key above its values, and the same for their units where they have some."""
    yield [key, *map(_value, cells)]
    units = [cell.unit if isinstance(cell, Quantity) else None for cell in cells]
    if any(units):
        yield [f"{key}_unit", *units]


def _value(cell: Any) -> Any:
    value = raw(cell)
    return str(value).lower() if isinstance(value, bool) else value
