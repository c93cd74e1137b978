"""How plots look: Okabe and Ito's colours, which colour-blind people can tell apart, and a second sign beside each.

A series also has its own dashes and marker, a bar's part its own hatch, so that a print in grey reads as well.
Colours come from the page's CSS variables where there are any; elsewhere they are what stands here, on white.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INK, SOFT, LINE, PAGE = "#1b1f24", "#59636e", "#d5dae0", "#ffffff"
_SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (8, 2, 2, 2)), (0, (4, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo")

VARIABLES = {
    INK: "--ink", SOFT: "--soft", LINE: "--line", PAGE: "--page",
    **{colour: f"--series-{number}" for number, colour in enumerate(_SERIES, start=1)},
}  # fmt: skip
"""The CSS variable that stands for each colour."""

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none", "pdf.fonttype": 42, "figure.dpi": 100, "savefig.dpi": 200,
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 12, "axes.titlelocation": "left",
    "axes.titleweight": "bold", "text.color": INK, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "axes.edgecolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "lines.linewidth": 2.0, "lines.markersize": 5.5, "hatch.linewidth": 0.8,
    "legend.frameon": False,
}  # fmt: skip

BACKING: dict[str, Any] = {"boxstyle": "square,pad=0.12", "facecolor": PAGE, "edgecolor": "none", "alpha": 0.8}
"""Behind a text, so that a line or a hatch does not run through it."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one series or one part of a bar is told from the others."""

    colour: str
    dashes: Any
    marker: str
    hatch: str

    @classmethod
    def of(cls, number: int) -> Look:
        """The look of series `number`, counted from 0; the cycles differ in length, so that pairs repeat late."""
        return cls(*(cycle[number % len(cycle)] for cycle in (_SERIES, _DASHES, _MARKERS, _HATCHES)))
