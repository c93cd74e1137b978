"""GitHub-flavoured markdown: tables aligned in the source too, so that it reads as text before it is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvplan.formats._cells import TextColumn, spans, text_columns
from kvplan.formats._screen import PAPER, Screen
from kvplan.table import Document, Section, Table

SUFFIXES = (".md", ".markdown")
NOTES = True

_SPECIAL = re.compile(r"[\\*\[`~]|<(?=[A-Za-z/!?])|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
_OPENS_A_BLOCK = re.compile(r"\A(\d*)([#>+.)-])")


def render(document: Document, _: Screen = PAPER, /) -> str:
    """Blocks with an empty line between them. Figures are named: markdown on GitHub shows no inline SVG."""
    return "\n\n".join(_blocks(document)) + "\n"


def _blocks(document: Document) -> Iterator[str]:
    if document.title:
        yield f"# {_inline(document.title)}"
    if document.lead:
        yield _paragraph(document.lead)
    for section in document.parts:
        yield from _section(section)
    if document.notes:
        yield "## Notes"
        yield "\n".join(f"- {_paragraph(note)}" for note in document.notes)


def _section(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {_inline(section.title)}"
    yield from map(_paragraph, section.text)
    for table in section.tables:
        if table.title and table.title != section.title:
            yield f"### {_inline(table.title)}"
        yield _table(table)
        if table.caption:
            yield _paragraph(table.caption)
    for figure in section.figures:
        yield _inline(f"Figure: {figure.title}. {figure.caption} (drawn in HTML)")
    yield from map(_fenced, section.code)


def _table(table: Table) -> str:
    columns = [_column(column) for column in text_columns(table)]
    return "\n".join(f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))


def _column(column: TextColumn) -> list[str]:
    """Head, rule and cells of one column, padded to the same width."""
    head = f"{column.title} ({column.unit})" if column.unit else column.title
    texts = [_cell(text) for text in (head, *column.cells)]
    width = max(3, *map(len, texts))
    padded = [text.rjust(width) if column.is_number else text.ljust(width) for text in texts]
    rule = "-" * (width - 1) + ":" if column.is_number else "-" * width
    return [padded[0], rule, *padded[1:]]


def _cell(text: str) -> str:
    """On one line; GitHub's tables want a pipe escaped even within code."""
    return "<br>".join(_inline(line).replace("|", r"\|") for line in text.splitlines())


def _paragraph(text: str) -> str:
    """Text that stays a paragraph even if it begins like a heading or a list."""
    return _OPENS_A_BLOCK.sub(r"\1\\\2", _inline(text))


def _inline(text: str) -> str:
    """Nothing becomes markup but what stands between backticks, and addresses."""
    return "".join(_span(piece, kind) for piece, kind in spans(text))


def _span(piece: str, kind: str) -> str:
    if kind == "code":
        return f"`{piece}`"
    return piece if kind == "url" else _SPECIAL.sub(r"\\\g<0>", piece)


def _fenced(code: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}\n{code}\n{fence}"
