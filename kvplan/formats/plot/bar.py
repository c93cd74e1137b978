"""Stacked bars: what a whole is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvplan.formats._cells import own_text
from kvplan.formats.plot._axes import Axis, dress
from kvplan.formats.plot._style import BACKING, INK, PAGE, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE_ENOUGH = 0.14
"""Share of the axis from which a part has room for its size."""

_LEGEND = 84
"""Characters in a line of the legend; each name has a patch before it and a gap behind it, 8 together."""


@dataclass(frozen=True, slots=True)
class StackedBar:
    """One bar per name, made of (label, size) parts; a label looks the same in every bar.

    `limit`: the name and the size of what there is, marked across the bars.
    """

    title: str
    x: Axis
    bars: Sequence[tuple[str, Sequence[tuple[str, float]]]]
    caption: str = ""
    limit: tuple[str, float] | None = None

    @property
    def height_in(self) -> float:
        """Of the picture, in inches: the legend and the axis, and a row for each bar."""
        return 1.7 + 0.55 * len(self.bars)

    def draw(self, axes: Axes) -> None:
        """Bars from top to bottom, their sizes where there is room, and the names of the parts below."""
        looks: dict[str, Look] = {}
        for row, (_, parts) in enumerate(self.bars):
            self._bar(axes, row, parts, looks)
        axes.set_yticks(range(len(self.bars)), [name for name, _ in self.bars])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        self._limit(axes)
        dress(axes.xaxis, self.x)
        patches = [axes.barh(0, 0, **_fill(look), label=label) for label, look in looks.items()]
        longest = max(map(len, looks), default=0)
        axes.figure.legend(handles=patches, loc="outside lower left", ncols=max(1, _LEGEND // (longest + 8)))

    def _bar(self, axes: Axes, row: int, parts: Sequence[tuple[str, float]], looks: dict[str, Look]) -> None:
        start = 0.0
        for label, size in parts:
            axes.barh(row, size, left=start, height=0.6, **_fill(looks.setdefault(label, Look.of(len(looks)))))
            if size > _WIDE_ENOUGH * self._longest:
                text = own_text(size, self.x.unit)
                axes.text(start + size / 2, row, text, ha="center", va="center", bbox=BACKING)
            start += size

    def _limit(self, axes: Axes) -> None:
        if self.limit:
            name, size = self.limit
            axes.axvline(size, color=INK, linewidth=1.2, linestyle=(0, (4, 2)))
            at_top = axes.get_xaxis_transform()
            axes.annotate(name, (size, 1.0), xycoords=at_top, xytext=(0, 3), textcoords="offset points", ha="right")

    @property
    def _longest(self) -> float:
        return max(sum(size for _, size in parts) for _, parts in self.bars)


def _fill(look: Look) -> dict[str, Any]:
    return {"color": look.colour, "hatch": look.hatch, "edgecolor": PAGE, "linewidth": 1.0}
