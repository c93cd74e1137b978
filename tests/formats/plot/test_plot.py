"""kvplan.formats.plot: figures that follow the page, files that are the same each time."""

from __future__ import annotations

import functools
import importlib.util
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import BadInput, MissingExtra
from kvplan.formats import plot
from kvplan.formats.plot import Axis, Chart, LineChart, Roofline, StackedBar
from kvplan.formats.plot._style import Look
from kvplan.formats.plot.line import spread

pytest.importorskip("matplotlib", reason="needs the extra `plot`")

GIB = 2**30
TOKENS = [2**power for power in range(12, 18)]
SVG = "{http://www.w3.org/2000/svg}"
CHARTS: dict[str, Chart] = {
    "line": LineChart(
        "Cache against context",
        Axis("Context (tokens)", "tokens", is_log=True),
        Axis("Cache per session", "bytes", is_log=True),
        [
            ("deepseek-v3", TOKENS, [70272.0 * tokens for tokens in TOKENS]),
            ("llama & co", TOKENS, [*(327680.0 * tokens for tokens in TOKENS[:3]), None, float("nan"), 0.0]),
        ],
        caption="Both axes <logarithmic>.",
    ),
    "bar": StackedBar(
        "Memory of one GPU",
        Axis("Memory", "bytes"),
        [
            ("deepseek-v3", [("weights", 84 * GIB), ("graphs", GIB), ("KV pool", 41 * GIB)]),
            ("llama", [("weights", 9 * GIB)]),
        ],
    ),
    "roofline": Roofline("Roofline of an H200", 4.8e12, 989e12, [("decode", 1.9, 7.1e12), ("prefill", 900, 5.9e14)]),
}


@functools.cache
def svg(name: str) -> str:
    """The figure's SVG."""
    drawn = plot.figure(CHARTS[name])
    assert drawn
    return drawn.svg


def words(name: str) -> list[str]:
    """Everything that is written in the figure, as text and not as outlines."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg(name)).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("line", {"deepseek-v3", "llama & co", "4k", "32k", "128k", "1 GiB", "Context (tokens)", "Cache per session"}),
        ("bar", {"deepseek-v3", "llama", "weights", "graphs", "KV pool", "84.00 GiB", "100 GiB", "Memory"}),
        ("roofline", {"decode", "prefill", "memory 4.80 TB/s", "compute 989 TFLOP/s", "ridge 206 FLOP/B", "1 PFLOP/s"}),
    ],
)
def test_a_figure_names_its_series_ticks_and_units(name: str, expected: set[str]) -> None:
    assert expected <= set(words(name))


@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_is_an_element_that_scales_and_takes_the_colours_of_the_page(name: str) -> None:
    root = ElementTree.fromstring(svg(name))

    assert root.tag == f"{SVG}svg"
    assert {"viewBox", "role", "aria-label"} <= set(root.keys())
    assert not {"width", "height"} & set(root.keys())
    colours = re.findall(r"(?:fill|stroke): (?!none|url)([^;\"]*)", svg(name))
    assert colours
    assert all(colour.startswith("var(--") for colour in colours)


@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_refers_to_what_it_holds_and_names_nothing_else(name: str) -> None:
    named = re.findall(r' id="([^"]*)"', svg(name))
    used = re.findall(r'(?:url\(|href=")#([^")]+)', svg(name))

    assert sorted(named) == sorted(set(used))


def test_text_in_a_label_is_escaped() -> None:
    assert ElementTree.fromstring(svg("line")).get("aria-label") == "Cache against context. Both axes <logarithmic>."


def test_a_point_without_a_value_is_left_out() -> None:
    drawn = ElementTree.fromstring(svg("line"))
    markers = [use for use in drawn.iter(f"{SVG}use") if "--series-2" in (use.get("style") or "")]

    assert len(markers) == 3


def test_long_names_of_parts_stay_within_the_picture() -> None:
    parts = [(f"a long name of what part {number} of the memory is", GIB) for number in range(6)]
    drawn = plot.figure(StackedBar("t", Axis("Memory", "bytes"), [("model", parts)]))

    assert drawn
    starts = [float(x) for x in re.findall(r'<text [^>]*? x="([^"]*)"', drawn.svg)]
    assert all(0 <= start <= 518 - 6 * len(parts[0][0]) for start in starts[-6:])


def test_a_series_without_any_value_is_left_out() -> None:
    chart = LineChart("t", Axis("x"), Axis("y"), [("gone", [1, 2], [None, None]), ("there", [1, 2], [3, 4])])
    drawn = plot.figure(chart)

    assert drawn
    assert "there" in drawn.svg
    assert "gone" not in drawn.svg


def test_series_differ_in_more_than_colour() -> None:
    looks = [Look.of(number) for number in range(30)]

    assert len({(str(look.dashes), look.marker) for look in looks}) == 30
    assert len({(look.colour, look.hatch) for look in looks}) == 30


@given(st.lists(st.floats(0, 300), max_size=8))
def test_names_do_not_cover_each_other(heights: list[float]) -> None:
    placed = spread(heights, gap=10, lowest=5)
    order = sorted(range(len(heights)), key=heights.__getitem__)

    assert all(placed[above] - placed[below] > 9 for below, above in pairwise(order))
    assert all(place >= 5 - 1e-9 for place in placed)


def test_names_that_have_room_stay_where_their_lines_end() -> None:
    assert spread([100, 20, 60], gap=10, lowest=0) == [100, 20, 60]


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_saved_plot_is_the_same_each_time(name: str, suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    plot.save(CHARTS[name], first)
    plot.save(CHARTS[name], second)

    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:4] in {b"<?xm", b"\x89PNG", b"%PDF"}


def test_a_saved_plot_has_its_title(tmp_path: Path) -> None:
    plot.save(CHARTS["roofline"], tmp_path / "a.svg")

    assert "Roofline of an H200" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"written as \.svg, \.png or \.pdf, not '\.jpg'"):
        plot.save(CHARTS["bar"], tmp_path / "a.jpg")


def test_without_matplotlib_there_is_no_figure_and_a_file_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert plot.figure(CHARTS["line"]) is None
    with pytest.raises(MissingExtra, match=r"pip install 'kvplan\[plot\]'"):
        plot.save(CHARTS["line"], tmp_path / "a.svg")
