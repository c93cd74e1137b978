"""What every result turns into before it is shown: tables of raw values, and a payload for programs.

A command builds one `Document`; each module of `kvplan.formats` renders it. Values in rows are raw (bytes as int,
seconds as float); the column's `unit` tells a renderer how to write them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal[
    "text", "count", "tokens", "bytes", "exact_bytes", "percent", "ratio", "s",
    "bytes_per_s", "flops_per_s", "tokens_per_s", "flops", "bool",
]
"""bytes: scaled to KiB..TiB for people. exact_bytes: digits with separators. percent: a fraction shown times 100."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the key that programs use, the title that people read, and the unit of its raw values."""

    key: str
    title: str
    unit: Unit = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values under columns. `None` in a cell means unknown or undefined."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One answer: a lead paragraph, tables and notes for people, and the payload that the JSON contract promises."""

    command: str
    tables: Sequence[Table]
    payload: Mapping[str, Any]
    lead: str = ""
    notes: Sequence[str] = field(default=())
    figures: Sequence[Figure] = field(default=())


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot as self-contained SVG text, with the sentence that says what it shows."""

    title: str
    svg: str
    caption: str = ""
