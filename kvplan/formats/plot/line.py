"""Lines over shared axes, each with its name at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from kvplan.formats.plot._axes import Axis, dress
from kvplan.formats.plot._style import BACKING, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAME_POINTS = 13.0
"""Height of a name: two lines that end closer together get their names spread."""


@dataclass(frozen=True, slots=True)
class LineChart:
    """Series of (name, xs, ys); a y that is None, infinite, or zero on a logarithmic axis leaves its point out."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[tuple[str, Sequence[float], Sequence[float | None]]]
    caption: str = ""

    @property
    def height_in(self) -> float:
        """Of the picture, in inches."""
        return 4.0

    def draw(self, axes: Axes) -> None:
        """Lines, ticks over what they span, then the names."""
        axes.set_xscale("log" if self.x.is_log else "linear")
        axes.set_yscale("log" if self.y.is_log else "linear")
        ends = [end for number in range(len(self.series)) if (end := self._line(axes, number))]
        if not self.y.is_log:
            axes.set_ylim(bottom=0)
        dress(axes.xaxis, self.x)
        dress(axes.yaxis, self.y)
        name_ends(axes, ends)

    def _line(self, axes: Axes, number: int) -> tuple[str, float, float] | None:
        """Draw one series; its name and last point, or None if it has no point to show."""
        name, xs, ys = self.series[number]
        points = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None and self._can_show(y)]
        if not points:
            return None
        look = Look.of(number)
        axes.plot(*zip(*points, strict=True), color=look.colour, linestyle=look.dashes, marker=look.marker)
        return (name, *points[-1])

    def _can_show(self, y: float) -> bool:
        return math.isfinite(y) and (y > 0 or not self.y.is_log)


def name_ends(axes: Axes, ends: Sequence[tuple[str, float, float]]) -> None:
    """Write each name to the right of its point, moved up or down where it would cover another or the ticks."""
    names = [
        axes.annotate(
            name, (x, y), xytext=(8, 0), textcoords="offset points", va="center", annotation_clip=False, bbox=BACKING
        )
        for name, x, y in ends
    ]
    canvas = cast("Figure", axes.figure)
    canvas.draw_without_rendering()  # settles the layout, and with it where each point is
    points_per_pixel = 72 / canvas.dpi
    heights = [axes.transData.transform((x, y))[1] * points_per_pixel for _, x, y in ends]
    lowest = axes.bbox.y0 * points_per_pixel + _NAME_POINTS / 2
    for name, height, place in zip(names, heights, spread(heights, _NAME_POINTS, lowest), strict=True):
        name.xyann = (8, place - height)


def spread(heights: Sequence[float], gap: float, lowest: float) -> list[float]:
    """The heights in their order, from `lowest` up, neighbours pushed apart until `gap` lies between them."""
    placed = [max(lowest, height) for height in heights]
    neighbours = list(pairwise(sorted(range(len(heights)), key=heights.__getitem__)))
    for _ in range(100):
        for below, above in neighbours:
            push = max(0.0, gap - (placed[above] - placed[below]))
            down = min(push / 2, placed[below] - lowest)
            placed[below] -= down
            placed[above] += push - down
    return placed
