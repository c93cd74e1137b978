"""Axes that say their units: ticks at lengths and sizes that people name, each with its unit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan import units
from kvplan.formats._cells import LADDERS
from kvplan.table import Unit

if TYPE_CHECKING:
    from matplotlib.axis import Axis as DrawnAxis

_MOST_TICKS = 11


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis measures. A logarithmic one counts tokens and bytes in powers of two, all else in tens.

    Where tens alone would be few, their doubles and halves stand between: 10, 20, 50, 100.
    """

    label: str
    unit: Unit = "count"
    is_log: bool = False

    def ticks(self, low: float, high: float) -> list[tuple[float, str]]:
        """Places from `low` to `high`, and what stands there: 131072 tokens '128k', 2**34 bytes '16 GiB'."""
        powers = self._powers(low, high) if self.is_log else []
        return [(place, self._text(place)) for place in (powers if len(powers) > 1 else self._multiples(low, high))]

    def _powers(self, low: float, high: float) -> list[float]:
        base, log = (2, math.log2) if self.unit in {"tokens", "bytes"} else (10, math.log10)
        first, last = math.ceil(log(low)), math.floor(log(high))
        stride = max(0, last - first) // _MOST_TICKS + 1
        powers = [float(base) ** power for power in range(first, last + 1, stride)]
        if base == 2 or not 10 * low <= high < 1000 * low:
            return powers
        between = (10.0**power * digit for power in range(first - 1, last + 1) for digit in (1, 2, 5))
        return [place for place in between if low <= place <= high]

    def _multiples(self, low: float, high: float) -> list[float]:
        step = self._step((high - low) / (_MOST_TICKS - 4))
        return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]

    def _step(self, least: float) -> float:
        """The first round number that is not below `least`, in the unit in which it is written."""
        if self.unit == "tokens":
            return 2.0 ** math.ceil(math.log2(least))
        size = LADDERS[self.unit].step(least)[0] if self.unit in LADDERS else 1.0
        decade = 10.0 ** math.floor(math.log10(least / size))
        return next(size * decade * digit for digit in (1, 2, 5, 10) if decade * digit >= least / size)

    def _text(self, place: float) -> str:
        if self.unit == "tokens":
            return units.format_tokens(round(place))
        if self.unit == "percent":
            return f"{place:.0%}"
        size, name = LADDERS[self.unit].step(place) if self.unit in LADDERS and place else (1.0, "")
        value = round(place / size, 6)
        return (f"{value:,.0f} {name}" if value.is_integer() else f"{value:,g} {name}").rstrip()


def dress(drawn: DrawnAxis, axis: Axis) -> None:
    """Give matplotlib's `drawn` axis the label and the ticks of `axis`, over what it shows now."""
    places = axis.ticks(*sorted(drawn.get_view_interval()))
    drawn.set_ticks([place for place, _ in places], [text for _, text in places])
    drawn.set_ticks([], minor=True)
    drawn.set_label_text(axis.label)
