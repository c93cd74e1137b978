"""Fit a table to the width of a screen without losing a value.

Too wide? First, what is the same in every row is said once, above the table. Then the columns are cut into parts
that fit, each led by the columns that say which row it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvplan.formats._cells import TextColumn

GAP = 2
"""Characters between two columns."""
_PROSE = 72
"""A column of prose is not made wider: longer lines are hard to read."""


@dataclass(frozen=True, slots=True)
class Part:
    """Columns that stand side by side, and the characters that each gets."""

    columns: tuple[TextColumn, ...]
    widths: tuple[int, ...]


def fit(columns: Sequence[TextColumn], index_columns: int, width: int) -> tuple[list[TextColumn], list[Part]]:
    """The columns to say once because their rows agree, and all others in parts of at most `width` characters."""
    index, rest = columns[:index_columns], columns[index_columns:]
    said_once: list[TextColumn] = []
    if _total(map(_least, columns)) > width:
        said_once = [column for column in columns[1:] if _is_constant(column)]
        index, rest = ([column for column in part if column not in said_once] for part in (index, rest))
    lead = sum(_least(column) + GAP for column in index)
    cuts = _even_cuts([_least(column) for column in rest], width - lead)
    return said_once, [_part([*index, *rest[start:end]], width) for start, end in cuts]


def _is_constant(column: TextColumn) -> bool:
    return len(column.cells) > 1 and len(set(column.cells)) == 1


def _even_cuts(least: Sequence[int], width: int) -> list[tuple[int, int]]:
    """As few parts as fit, and among those the ones of the most even width."""
    fewest = len(_cuts(least, width))
    even = next(narrow for narrow in range(max(width, 1) + 1) if len(_cuts(least, narrow)) == fewest)
    return _cuts(least, even)


def _cuts(least: Sequence[int], width: int) -> list[tuple[int, int]]:
    """Where each part starts and ends, filled in order; one column at least, even where it is too wide."""
    cuts = [(0, 0)]
    for position in range(len(least)):
        start, end = cuts[-1]
        if end > start and _total(least[start : position + 1]) > width:
            cuts.append((position, position + 1))
        else:
            cuts[-1] = (start, position + 1)
    return cuts


def _part(columns: Sequence[TextColumn], width: int) -> Part:
    """Each column gets its least width; what is spare goes first to the column that lacks least."""
    widths = [_least(column) for column in columns]
    spare = width - _total(widths)
    if spare < 0:
        widest = widths.index(max(widths))
        widths[widest] = max(8, widths[widest] + spare)
    lacking = [min(_widest(column.cells), _PROSE) - least for column, least in zip(columns, widths, strict=True)]
    for position in sorted(range(len(columns)), key=lacking.__getitem__):
        extra = max(0, min(spare, lacking[position]))
        widths[position] += extra
        spare -= extra
    return Part(tuple(columns), tuple(widths))


def _total(widths: Iterable[int]) -> int:
    return sum(width + GAP for width in widths) - GAP


def _least(column: TextColumn) -> int:
    """Numbers stay whole and a head takes two lines; prose may wrap, down to 24 characters or its longest word."""
    widest = _widest(column.cells)
    if not column.is_number:
        longest_word = _widest(word for cell in column.cells for word in cell.split())
        widest = min(widest, max(24, min(longest_word, 40)))
    return max(_two_lines(column.title), len(column.unit), widest)


def _widest(texts: Iterable[str]) -> int:
    return max((len(line) for text in texts for line in text.splitlines()), default=0)


def _two_lines(title: str) -> int:
    """The least width in which `title` needs no third line."""
    words = title.split()
    cuts = (max(len(" ".join(words[:cut])), len(" ".join(words[cut:]))) for cut in range(len(words)))
    return min(cuts, default=0)
