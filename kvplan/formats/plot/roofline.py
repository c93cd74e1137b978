"""The roofline: what memory and arithmetic allow, and where a step stands beneath them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan import units
from kvplan.formats.plot._axes import Axis, dress
from kvplan.formats.plot._style import BACKING, INK, SOFT, Look
from kvplan.formats.plot.line import name_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INTENSITY = Axis("Arithmetic intensity (FLOP per byte)", is_log=True)
_SPEED = Axis("Speed", "flops_per_s", is_log=True)


@dataclass(frozen=True, slots=True)
class Roofline:
    """Points of (name, FLOP per byte, FLOP/s) under min(intensity x bytes_per_s, flops_per_s)."""

    title: str
    bytes_per_s: float
    flops_per_s: float
    points: Sequence[tuple[str, float, float]]
    caption: str = ""

    @property
    def height_in(self) -> float:
        """Of the picture, in inches."""
        return 4.0

    @property
    def ridge(self) -> float:
        """FLOP per byte at which arithmetic becomes what binds."""
        return self.flops_per_s / self.bytes_per_s

    def draw(self, axes: Axes) -> None:
        """The roof with its two limits and its ridge, then the points by name."""
        axes.set(xscale="log", yscale="log")
        self._roof(axes)
        for number, (_, intensity, flops_per_s) in enumerate(self.points):
            look = Look.of(number)
            (point,) = axes.plot(intensity, flops_per_s, color=look.colour, marker=look.marker, markersize=9)
            point.set_zorder(4)  # above the names
        dress(axes.xaxis, _INTENSITY)
        dress(axes.yaxis, _SPEED)
        name_ends(axes, self.points)

    def _roof(self, axes: Axes) -> None:
        intensities = [self.ridge, *(intensity for _, intensity, _ in self.points)]
        low, high = min(intensities) / 8, max(intensities) * 8
        axes.plot([low, self.ridge, high], [low * self.bytes_per_s, self.flops_per_s, self.flops_per_s], color=INK)
        axes.plot([self.ridge] * 2, [low * self.bytes_per_s, self.flops_per_s], color=SOFT, linestyle=":", linewidth=1)
        notes = [
            (f"memory {units.format_rate(self.bytes_per_s, 'B/s')}", low, low * self.bytes_per_s, "left", (12, 0)),
            (f"compute {units.format_rate(self.flops_per_s, 'FLOP/s')}", high, self.flops_per_s, "right", (0, 8)),
            (f"ridge {self.ridge:,.0f} FLOP/B", self.ridge, low * self.bytes_per_s, "left", (5, 2)),
        ]
        for text, x, y, align, offset in notes:
            axes.annotate(text, (x, y), xytext=offset, textcoords="offset points", ha=align, color=SOFT, bbox=BACKING)
