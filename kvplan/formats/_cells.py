"""Raw values as people read them: the one text of a cell that terminal, markdown and HTML all show."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan import units
from kvplan.table import Column, Quantity, Table, Unit

UNKNOWN = "—"
_MARKED = re.compile(r"`(?P<code>[^`\n]+)`|(?P<url>https?://[^\s<>`|]*[\w/#=&%+-])")
LADDERS: dict[Unit, units.Ladder] = {
    "bytes": units.BYTES,
    "s": units.SECONDS,
    "bytes_per_s": units.decimal_ladder("B/s"),
    "flops_per_s": units.decimal_ladder("FLOP/s"),
    "flops": units.decimal_ladder("FLOP"),
}


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column ready to be set: the unit that all cells share belongs to the head, any other is in the cells."""

    title: str
    unit: str
    cells: tuple[str, ...]
    is_number: bool
    is_verdict: bool = False


def text_columns(table: Table) -> list[TextColumn]:
    """The columns of `table` with every cell as text, `None` and what is no number as a dash."""
    by_column = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.columns)
    scales = [_scale(column, cells) for column, cells in zip(table.columns, by_column, strict=True)]
    decimals = {scale.unit: max(s.decimals for s in scales if s and s.unit == scale.unit) for scale in scales if scale}
    return [
        _text_column(column, cells, scale and replace(scale, decimals=decimals[scale.unit]))
        for column, cells, scale in zip(table.columns, by_column, scales, strict=True)
    ]


def raw(cell: Any) -> Any:
    """The value for programs: without its unit, `None` where it is unknown, infinite or undefined."""
    value = cell.value if isinstance(cell, Quantity) else cell
    return None if isinstance(value, float) and not math.isfinite(value) else value


def spans(text: str) -> Iterator[tuple[str, str]]:
    """`text` in pieces, each with its kind: "text", "code" (which stood between backticks) or "url"."""
    end = 0
    for match in _MARKED.finditer(text):
        if match.start() > end:
            yield text[end : match.start()], "text"
        yield (match["code"], "code") if match["code"] else (match["url"], "url")
        end = match.end()
    if end < len(text):
        yield text[end:], "text"


def plain(text: str) -> str:
    """`text` without its backticks."""
    return "".join(piece for piece, _ in spans(text))


@dataclass(frozen=True, slots=True)
class _Scale:
    """One unit for a whole column, and as many decimals as all columns of that unit have."""

    size: float
    unit: str
    decimals: int

    def write(self, value: float) -> str:
        return f"{value / self.size:,.{self.decimals}f}" if value else "0"


def _scale(column: Column, cells: Sequence[Any]) -> _Scale | None:
    """None where the column's unit has no prefixes, or no prefix suits both its smallest and its largest value."""
    values = [raw(cell) for cell in cells if not isinstance(cell, Quantity) and raw(cell) is not None]
    step = LADDERS[column.unit].common_step(values) if column.unit in LADDERS else None
    if step is None:
        return None
    size, unit = step
    if all(value % size == 0 for value in values):
        return _Scale(size, unit, decimals=0)
    return _Scale(size, unit, decimals=3 if any(0 < abs(value) < size for value in values) else 2)


def _text_column(column: Column, cells: Sequence[Any], scale: _Scale | None) -> TextColumn:
    head_unit, write = _writer(column.unit, scale)
    texts = (own_text(cell.value, cell.unit) if isinstance(cell, Quantity) else _known(cell, write) for cell in cells)
    has_own = any(isinstance(cell, Quantity) for cell in cells)
    is_number = has_own or column.unit not in {"text", "verdict", "bool"}
    return TextColumn(column.title, head_unit, tuple(texts), is_number, column.unit == "verdict")


def _known(cell: Any, write: Callable[[Any], str]) -> str:
    value = raw(cell)
    return UNKNOWN if value is None else write(value)


def _writer(unit: Unit, scale: _Scale | None) -> tuple[str, Callable[[Any], str]]:
    """The unit for the column's head and what writes its values; an empty unit where each cell has its own."""
    if scale:
        return scale.unit, scale.write
    return _PLAIN[unit] if unit in _PLAIN else ("", lambda value: own_text(value, unit))


def own_text(value: Any, unit: Unit) -> str:
    """One value with its unit behind it."""
    if raw(value) is None:
        return UNKNOWN
    if unit == "bytes":
        return units.format_bytes(value)
    if unit == "s":
        return units.format_seconds(value)
    if unit in LADDERS:
        return units.format_rate(value, LADDERS[unit].steps[-1][1])
    suffix, write = _PLAIN[unit]
    return f"{write(value)} {suffix}".rstrip()


def _count(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


_PLAIN: dict[Unit, tuple[str, Callable[[Any], str]]] = {
    "text": ("", str),
    "verdict": ("", str),
    "bool": ("", lambda value: "yes" if value else "no"),
    "count": ("", _count),
    "tokens": ("tokens", units.format_tokens),
    "exact_bytes": ("B", _count),
    "percent": ("", "{:.2%}".format),
    "ratio": ("", "{:.2f}×".format),
    "tokens_per_s": ("tokens/s", units.format_significant),
}
