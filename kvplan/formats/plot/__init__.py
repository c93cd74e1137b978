"""Plots, drawn by matplotlib where it is installed (the extra `plot`).

A chart is plain data with its units; `figure` turns it into SVG for a document, `save` into a file. The same chart
gives the same bytes.
"""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any, Protocol

from kvplan.errors import BadInput, MissingExtra
from kvplan.formats import _output
from kvplan.formats.plot._axes import Axis
from kvplan.formats.plot._style import SETTINGS
from kvplan.formats.plot._svg import for_page
from kvplan.formats.plot.bar import StackedBar
from kvplan.formats.plot.line import LineChart
from kvplan.formats.plot.roofline import Roofline
from kvplan.table import Figure

__all__ = ["Axis", "Chart", "LineChart", "Roofline", "StackedBar", "figure", "save"]
_WIDTH_IN = 7.2
_UNDATED: dict[str, dict[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}


class Chart(Protocol):
    """What can be drawn."""

    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def height_in(self) -> float: ...
    def draw(self, axes: Any) -> None: ...


def figure(chart: Chart) -> Figure | None:
    """`chart` as SVG that follows the page's colours; None where matplotlib is not installed."""
    if not _is_installed():
        return None
    svg = _drawn(chart, "svg", has_title=False, transparent=True).decode()
    return Figure(chart.title, for_page(svg, f"{chart.title}. {chart.caption}".strip()), chart.caption)


def save(chart: Chart, path: Path) -> None:
    """Write `chart` as .svg, .png or .pdf; MissingExtra without matplotlib, BadInput for another suffix."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _UNDATED:
        raise BadInput(f"{path}: a plot is written as .svg, .png or .pdf, not {path.suffix!r}")
    if not _is_installed():
        raise MissingExtra("plots need matplotlib: pip install 'kvplan[plot]'")
    _output.to_file(_drawn(chart, kind, has_title=True, transparent=False), path)


def _is_installed() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _drawn(chart: Chart, kind: str, *, has_title: bool, transparent: bool) -> bytes:
    from matplotlib import style
    from matplotlib.figure import Figure as Canvas

    with style.context(["default", {**SETTINGS, "svg.hashsalt": chart.title}]):
        canvas = Canvas(figsize=(_WIDTH_IN, chart.height_in), layout="constrained")
        axes = canvas.subplots()
        if has_title:
            axes.set_title(chart.title)
        chart.draw(axes)
        paper = io.BytesIO()
        canvas.savefig(paper, format=kind, transparent=transparent, metadata=_UNDATED[kind])
    return paper.getvalue()
