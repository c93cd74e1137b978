"""Tables for a terminal, drawn by rich: the answer first, then its tables; one too wide for the screen is cut."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.box import Box
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from kvplan.formats._cells import TextColumn, spans, text_columns
from kvplan.formats._fit import GAP, Part, fit
from kvplan.formats._screen import Screen
from kvplan.table import Document, Section, Table

SUFFIXES = (".txt",)
NOTES = False

_NARROWEST = 40
_PROSE_WIDTH = 100
_BOX = Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
"""Lines under the head and between groups of rows, and no other."""
_VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red"}


def render(document: Document, screen: Screen = Screen(), /) -> str:
    """Blocks with a blank line between them; colour codes only where the screen understands them."""
    paper = io.StringIO()
    console = Console(
        file=paper, width=max(screen.width, _NARROWEST), color_system="standard" if screen.colour else None,
        force_terminal=screen.colour, legacy_windows=False, highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    for position, block in enumerate(_blocks(document, console.width)):
        if position:
            console.print()
        console.print(block, crop=False)
    return "".join(line.rstrip() + "\n" for line in paper.getvalue().splitlines())


def _blocks(document: Document, width: int) -> Iterator[RenderableType]:
    if document.title:
        yield Text(document.title, style="bold")
    if document.lead:
        yield _prose(document.lead)
    for section in document.parts:
        yield from _section(section, width)


def _section(section: Section, width: int) -> Iterator[RenderableType]:
    if section.title:
        yield Text.assemble((section.title, "bold"), " ", ("─" * (width - len(section.title) - 1), "dim"))
    for paragraph in section.text:
        yield _prose(paragraph)
    for table in section.tables:
        yield _table(table, width, "" if table.title == section.title else table.title)
    for figure in section.figures:
        yield _prose(f"Figure: {figure.title}. {figure.caption} (drawn in HTML)", "dim")
    for code in section.code:
        yield Padding(Text(code, style="cyan", no_wrap=True, overflow="ignore"), (0, 0, 0, 2))


def _table(table: Table, width: int, title: str) -> Group:
    said_once, parts = fit(text_columns(table), table.index_columns, width)
    lines: list[RenderableType] = [Text(title, style="bold")] if title else []
    if said_once:
        lines.append(_prose(_in_every_row(said_once), "dim"))
    for number, part in enumerate(parts):
        lines += [_grid(part)] if number == 0 else [Text(), _grid(part)]
    if table.caption:
        lines.append(_prose(table.caption, "dim"))
    return Group(*lines)


def _in_every_row(columns: Sequence[TextColumn]) -> str:
    said = (f"{column.title} {column.cells[0]} {column.unit}".rstrip() for column in columns)
    return f"In every row: {', '.join(said)}."


def _grid(part: Part) -> Grid:
    grid = Grid(box=_BOX, show_edge=False, padding=(0, GAP - 1, 0, 0), pad_edge=False, border_style="dim")
    has_units = any(column.unit for column in part.columns)
    for column, width in zip(part.columns, part.widths, strict=True):
        head = Text.assemble(column.title, ("\n" + column.unit, "dim")) if has_units else Text(column.title)
        grid.add_column(
            head, width=width, justify="right" if column.is_number else "left", vertical="top", overflow="fold"
        )
    ends = _group_ends(part.columns[0].cells)
    cells = [[_cell(text, is_verdict=column.is_verdict) for text in column.cells] for column in part.columns]
    for position, row in enumerate(zip(*cells, strict=True)):
        grid.add_row(*row, end_section=position in ends)
    return grid


def _group_ends(index: Sequence[str]) -> set[int]:
    """The last row of each group that shares its first cell; none where each row has its own."""
    ends = {row for row in range(len(index) - 1) if index[row] != index[row + 1]}
    return ends if len(ends) < len(index) - 1 else set()


def _cell(text: str, *, is_verdict: bool) -> Text:
    return Text(text, style=_VERDICT_STYLES.get(text, "")) if is_verdict else _inline(text)


def _prose(text: str, style: str = "") -> Constrain:
    return Constrain(_inline(text, style), _PROSE_WIDTH)


def _inline(text: str, style: str = "") -> Text:
    return Text.assemble(*((piece, "cyan" if kind == "code" else style) for piece, kind in spans(text)))
