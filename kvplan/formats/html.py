"""One self-contained HTML file: no request leaves the page, and it reads in light, in dark, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from kvplan import __version__
from kvplan.formats._cells import TextColumn, plain, spans, text_columns
from kvplan.formats._screen import PAPER, Screen
from kvplan.table import Document, Figure, Section, Table

SUFFIXES = (".html", ".htm")
NOTES = True

_CONTENTS_FROM = 4
_PROSE_FROM = 28
"""Characters from which a text cell may wrap; shorter ones stay on a line."""
_VERDICTS = {"pass", "warn", "fail"}
_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="generator" content="kvplan {version}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
"""


def render(document: Document, _: Screen = PAPER, /) -> str:
    """The same bytes for the same document: there is no date in it."""
    return "\n".join(_page(document)) + "\n"


def _page(document: Document) -> Iterator[str]:
    title = document.title or f"kvplan {document.command}"
    style = resources.files("kvplan.formats").joinpath("html.css").read_text(encoding="utf-8")
    yield _HEAD.format(version=__version__, title=escape(title), style=style)
    yield f"<header>\n<h1>{_inline(title)}</h1>"
    if document.lead:
        yield f'<p class="lead">{_inline(document.lead)}</p>'
    yield "</header>"
    yield from _contents(document.parts)
    yield "<main>"
    for number, section in enumerate(document.parts):
        yield from _section(section, f"section-{number}")
    yield from _notes(document.notes)
    yield "</main>"
    yield f"<footer>Written by kvplan {__version__}.</footer>\n</body>\n</html>"


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    titled = [(number, section.title) for number, section in enumerate(sections) if section.title]
    if len(titled) >= _CONTENTS_FROM:
        yield '<nav aria-label="Contents">\n<ol>'
        yield from (f'<li><a href="#section-{number}">{_inline(title)}</a></li>' for number, title in titled)
        yield "</ol>\n</nav>"


def _section(section: Section, anchor: str) -> Iterator[str]:
    if section.title:
        yield f'<section id="{anchor}">\n<h2>{_inline(section.title)}</h2>'
    for paragraph in section.text:
        yield f"<p>{_inline(paragraph)}</p>"
    for table in section.tables:
        yield from _table(table, is_titled=table.title == section.title)
    for figure in section.figures:
        yield _figure(figure)
    for code in section.code:
        yield f'<pre tabindex="0"><code>{escape(code)}</code></pre>'
    if section.title:
        yield "</section>"


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield '<section id="notes">\n<h2>Notes</h2>\n<ul>'
        yield from (f"<li>{_inline(note)}</li>" for note in notes)
        yield "</ul>\n</section>"


def _table(table: Table, *, is_titled: bool) -> Iterator[str]:
    """`is_titled`: the heading above says the title already, so that only a screen reader gets it again."""
    caption = 'caption class="unseen"' if is_titled else "caption"
    columns = text_columns(table)
    kinds = [_kind(column) for column in columns]
    yield f"<figure>\n{_scroller(table.title)}\n<table>"
    yield f"<{caption}><b>{_inline(table.title)}</b></caption>"
    yield f"<thead><tr>{''.join(map(_head, columns, kinds))}</tr></thead>\n<tbody>"
    for row in zip(*(column.cells for column in columns), strict=True):
        tags = ('th scope="row"' if position < table.index_columns else "td" for position in range(len(row)))
        yield f"<tr>{''.join(map(_cell, tags, row, kinds))}</tr>"
    yield "</tbody>\n</table>\n</div>"
    if table.caption:
        yield f"<figcaption>{_inline(table.caption)}</figcaption>"
    yield "</figure>"


def _kind(column: TextColumn) -> str:
    """The CSS class of a column."""
    if column.is_number or column.is_verdict:
        return "number" if column.is_number else "verdict"
    return "prose" if any(len(text) > _PROSE_FROM for text in column.cells) else "word"


def _head(column: TextColumn, kind: str) -> str:
    unit = f' <span class="unit">{escape(column.unit)}</span>' if column.unit else ""
    return f'<th scope="col" class="{kind}">{_inline(column.title)}{unit}</th>'


def _cell(tag: str, text: str, kind: str) -> str:
    kind = f"verdict {text}" if kind == "verdict" and text in _VERDICTS else kind
    return f'<{tag} class="{kind}">{"<br>".join(map(_inline, text.splitlines()))}</{tag[:2]}>'


def _scroller(title: str) -> str:
    """What is too wide scrolls in its own box, which the keyboard reaches."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(plain(title))}">'


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{_inline(figure.caption)}</figcaption>\n" if figure.caption else ""
    return (
        f'<figure class="plot">\n<h3>{_inline(figure.title)}</h3>\n'
        f"{_scroller(figure.title)}\n{figure.svg}\n</div>\n{caption}</figure>"
    )


def _inline(text: str) -> str:
    return "".join(_span(piece, kind) for piece, kind in spans(text))


def _span(piece: str, kind: str) -> str:
    text = escape(piece)
    if kind == "code":
        return f"<code>{text}</code>"
    return f'<a href="{text}">{text}</a>' if kind == "url" else text
