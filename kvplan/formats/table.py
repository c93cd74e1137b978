"""Tables for a terminal, in rich text: the answer first, then its tables; one too wide for the screen is cut."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import indent

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from kvplan.formats._cells import TextColumn, spans, text_columns
from kvplan.formats._fit import GAP, Part, fit
from kvplan.formats._screen import PAPER, Screen
from kvplan.table import Document, Section, Table

SUFFIXES = (".txt",)
NOTES = False

_NARROWEST = 40
_PROSE_WIDTH = 100
_VERDICT_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red"}


def render(document: Document, screen: Screen = PAPER, /) -> str:
    """Blocks with a blank line between them; colour codes only where the screen understands them."""
    paper = io.StringIO()
    console = Console(
        file=paper, width=max(screen.width, _NARROWEST), color_system="standard" if screen.colour else None,
        force_terminal=screen.colour, legacy_windows=False, highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    for position, block in enumerate(_blocks(document, console)):
        if position:
            console.print()
        console.print(Group(block), crop=False)  # a bare Text would be joined anew and forget that it must not wrap
    return "".join(line.rstrip() + "\n" for line in paper.getvalue().splitlines())


def _blocks(document: Document, console: Console) -> Iterator[RenderableType]:
    if document.title:
        yield Text(document.title, style="bold")
    if document.lead:
        yield _prose(document.lead)
    for section in document.parts:
        yield from _section(section, console)


def _section(section: Section, console: Console) -> Iterator[RenderableType]:
    if section.title:
        yield Text.assemble((section.title, "bold"), " ", _rule(console.width - len(section.title) - 1))
    for paragraph in section.text:
        yield _prose(paragraph)
    for table in section.tables:
        yield _table(table, console, "" if table.title == section.title else table.title)
    for figure in section.figures:
        yield _prose(f"Figure: {figure.title}. {figure.caption} (drawn in HTML)", "dim")
    for code in section.code:
        yield Text(indent(code, "  "), style="cyan", no_wrap=True, overflow="ignore")


def _table(table: Table, console: Console, title: str) -> Group:
    said_once, parts = fit(text_columns(table), table.index_columns, console.width)
    lines: list[RenderableType] = [Text(title, style="bold")] if title else []
    if said_once:
        lines.append(_prose(_in_every_row(said_once), "dim"))
    for number, part in enumerate(parts):
        lines += [_grid(part, console)] if number == 0 else [Text(), _grid(part, console)]
    if table.caption:
        lines.append(_prose(table.caption, "dim"))
    return Group(*lines)


def _in_every_row(columns: Sequence[TextColumn]) -> str:
    said = (f"{column.title} {column.cells[0]} {column.unit}".rstrip() for column in columns)
    return f"In every row: {', '.join(said)}."


def _grid(part: Part, console: Console) -> Text:
    """Heads, units, a line, rows; and a line after each group of rows that share their first cell."""
    line = _rule(sum(part.widths) + GAP * (len(part.widths) - 1))
    lines = [*_head(part, console), line]
    ends = _group_ends(part.columns[0].cells)
    for position, row in enumerate(zip(*(column.cells for column in part.columns), strict=True)):
        lines += _row(part, row, console)
        lines += [line] if position in ends else []
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _head(part: Part, console: Console) -> Iterator[Text]:
    """Titles, which end on the same line, and below them the units that whole columns share."""
    titles = [
        _wrapped(Text(column.title, style="bold"), width, console)
        for column, width in zip(part.columns, part.widths, strict=True)
    ]
    most = max(map(len, titles))
    yield from _lines(part, [[*[None] * (most - len(title)), *title] for title in titles])
    if any(column.unit for column in part.columns):
        yield from _lines(part, [[Text(column.unit, style="dim")] for column in part.columns])


def _row(part: Part, row: Sequence[str], console: Console) -> Iterator[Text]:
    cells = map(_cell, part.columns, row)
    return _lines(part, [_wrapped(cell, width, console) for cell, width in zip(cells, part.widths, strict=True)])


def _lines(part: Part, cells: Sequence[Sequence[Text | None]]) -> Iterator[Text]:
    """Cells of one or more lines each, side by side."""
    for line in zip_longest(*cells):
        yield Text(" " * GAP).join(map(_aligned, line, part.columns, part.widths))


def _wrapped(cell: Text, width: int, console: Console) -> Sequence[Text]:
    is_one_line = cell.cell_len <= width and "\n" not in cell.plain
    return [cell] if is_one_line else list(cell.wrap(console, width, overflow="fold"))


def _aligned(text: Text | None, column: TextColumn, width: int) -> Text:
    text = text or Text()
    text.rstrip()
    text.align("right" if column.is_number else "left", width)
    return text


def _rule(width: int) -> Text:
    return Text("─" * width, style="dim")


def _group_ends(index: Sequence[str]) -> set[int]:
    """The last row of each group that shares its first cell; none where each row has its own."""
    ends = {row for row in range(len(index) - 1) if index[row] != index[row + 1]}
    return ends if len(ends) < len(index) - 1 else set()


def _cell(column: TextColumn, text: str) -> Text:
    return Text(text, style=_VERDICT_STYLES.get(text, "")) if column.is_verdict else _inline(text)


def _prose(text: str, style: str = "") -> Constrain:
    return Constrain(_inline(text, style), _PROSE_WIDTH)


def _inline(text: str, style: str = "") -> Text:
    return Text.assemble(*((piece, "cyan" if kind == "code" else style) for piece, kind in spans(text)))
