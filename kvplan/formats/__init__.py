"""Output formats. Each public module of this folder is one:

    SUFFIXES  the file endings that choose it
    NOTES     whether notes are part of what it renders; otherwise they go to stderr, so that stdout is the answer
    render    (document, screen) -> str

The module's name is what `--format` calls it. A new format is a new file, and nothing else is edited. Modules whose
name starts with an underscore are shared helpers; the package `plot` makes figures for documents.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO, cast

from kvplan.errors import BadInput, UnknownName
from kvplan.formats import _output
from kvplan.formats._cells import plain
from kvplan.formats._screen import PAPER, Screen
from kvplan.table import Document

__all__ = ["Format", "Screen", "names", "render", "write", "write_lines"]
_DEFAULT = "table"


class Format(Protocol):
    """What a module of this folder exports."""

    SUFFIXES: tuple[str, ...]
    NOTES: bool

    def render(self, document: Document, screen: Screen = ..., /) -> str:
        """The whole answer as text that ends with a line break."""


def names() -> list[str]:
    """What `--format` accepts."""
    found = pkgutil.iter_modules(__path__)
    return sorted(module.name for module in found if not module.ispkg and not module.name.startswith("_"))


def render(document: Document, name: str = _DEFAULT, screen: Screen = PAPER) -> str:
    """`document` in the format called `name`; UnknownName if there is none."""
    return _named(name).render(document, screen)


def write(document: Document, name: str | None, output: Path | None, *, stream: TextIO | None = None) -> None:
    """Answer on `stream` (default: stdout), or in the file `output`, which is replaced whole or not at all.

    The format is `name`, else what the suffix of `output` says, else a table. Notes that the format does not hold
    go to stderr. BadInput for a suffix that no format has and for a file that cannot be written.
    """
    chosen = _named(name) if name else _of_suffix(output) if output else _named(_DEFAULT)
    if output:
        _output.to_file(chosen.render(document, Screen.of(None)).encode(errors="replace"), output)
    else:
        stream = stream or sys.stdout
        _output.to_stream(chosen.render(document, Screen.of(stream)), stream)
    if not chosen.NOTES:
        _output.to_stream(_notes(document, sys.stderr), sys.stderr)


def write_lines(payloads: Iterable[Mapping[str, Any]], output: Path | None, *, stream: TextIO | None = None) -> None:
    """Payloads as lines of JSON: on the stream each as soon as it comes, in a file all or nothing."""
    from kvplan.formats.json import line

    if output:
        _output.to_file("".join(map(line, payloads)).encode(), output)
        return
    for payload in payloads:
        _output.to_stream(line(payload), stream or sys.stdout)


def _notes(document: Document, stream: TextIO) -> str:
    """One line for each note in a log; set apart and wrapped between words on a terminal."""
    lines = ["note: " + plain(note) for note in document.notes]
    if lines and stream.isatty():
        import textwrap

        width = Screen.of(stream).width
        lines = ["", *(textwrap.fill(line, width, subsequent_indent="      ") for line in lines)]
    return "".join(line + "\n" for line in lines)


def _named(name: str) -> Format:
    """The format's module, imported only now: a script that reads JSON does not pay for drawing tables."""
    if name not in names():
        raise UnknownName.of("format", name, names())
    return cast("Format", importlib.import_module(f"{__name__}.{name}"))


def _of_suffix(output: Path) -> Format:
    known: list[str] = []
    for module in map(_named, names()):
        if output.suffix.lower() in module.SUFFIXES:
            return module
        known += module.SUFFIXES
    raise BadInput(f"{output}: no format has the suffix {output.suffix!r}; use {', '.join(known)}, or give --format")
