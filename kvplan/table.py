"""What every result turns into before it is shown: tables of raw values for people, and a payload for programs.

A command builds one `Document`; each module of `kvplan.formats` renders it. Values in rows are raw (bytes as int,
seconds as float); the column's `unit` tells a renderer how to write them.

    Document            one answer
    ├── lead            the question and the answer in a paragraph
    ├── tables, figures what a plain command shows
    ├── sections        what a report adds, each with its text, tables, figures and code
    ├── notes           what the reader should know about the answer
    └── payload         the same answer under the stable keys of the JSON contract

Texts are plain, with one piece of markup: `words between backticks` are code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal[
    "text", "verdict", "bool", "count", "tokens", "bytes", "exact_bytes", "percent", "ratio", "s",
    "bytes_per_s", "flops_per_s", "tokens_per_s", "flops",
]  # fmt: skip
"""How a raw value is written for people.

bytes: scaled to KiB..TiB. exact_bytes: every digit. percent: a fraction shown times 100. s: scaled to ns..s.
tokens: a length, 131072 as 128k. verdict: "pass", "warn" or "fail". The rates and flops take decimal prefixes.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the key that programs use, the title that people read, and the unit of its raw values."""

    key: str
    title: str
    unit: Unit = "text"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A cell with a unit of its own, for the column that holds tokens in one row and bytes in the next."""

    value: Any
    unit: Unit


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values under columns. `None` in a cell means unknown or undefined.

    The first `index_columns` columns say which row this is; they are repeated when a table is cut into parts that fit.
    """

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    index_columns: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot as an SVG element, with the sentence that says what it shows."""

    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of a report: paragraphs, then tables, figures, and code blocks that a reader can paste."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    code: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One answer. A plain command fills `tables`; a report fills `title` and `sections`."""

    command: str
    tables: Sequence[Table]
    payload: Mapping[str, Any]
    lead: str = ""
    notes: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    sections: Sequence[Section] = ()
    title: str = ""

    @property
    def parts(self) -> tuple[Section, ...]:
        """Everything between lead and notes as sections; the document's own tables and figures come first, untitled."""
        opening = Section("", tables=self.tables, figures=self.figures)
        return (opening, *self.sections) if self.tables or self.figures else tuple(self.sections)
