"""What the reader's screen can show."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TextIO

_DEFAULT_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Screen:
    """Characters in a line, and whether colour codes are understood. The default is a file or a pipe."""

    width: int = _DEFAULT_WIDTH
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO | None) -> Screen:
        """The screen behind `stream`; None is a file. COLUMNS, NO_COLOR and FORCE_COLOR are honoured."""
        terminal = stream if stream is not None and stream.isatty() else None
        return cls(_width(terminal), stream is not None and _colour(is_terminal=terminal is not None))


PAPER = Screen()


def _width(terminal: TextIO | None) -> int:
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    return (os.get_terminal_size(terminal.fileno()).columns if terminal else 0) or _DEFAULT_WIDTH


def _colour(*, is_terminal: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (is_terminal and os.environ.get("TERM") != "dumb")
