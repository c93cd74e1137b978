"""The whole report in a real browser: tables and plots are there, nothing overflows, nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.documents.report import Colophon, of_plans, study
from kvplan.formats.html import render
from kvplan.plan import Scenario
from tests import small
from tests.formats.test_html_browser import chromium, look_at

__all__ = ["chromium"]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page() -> str:
    """Two models on the same GPUs, one of which does not fit."""
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    fits = Scenario(model=small.LATENT, gpu=small.GPU, gpus=4, tp=4, context=32768)
    too_large = Scenario(model=small.GROUPED, gpu=small.GPU, gpus=4, tp=4, given_bytes={"weights": 79 * small.GIB})
    return render(of_plans([study(fits), study(too_large)], Colophon("kvplan report latent grouped --gpu fast --tp 4")))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_fits_the_window_with_all_its_tables_and_plots(
    page: str, chromium: str, tmp_path: Path, width: int, dark: bool
) -> None:
    found = look_at(page, chromium, tmp_path, width=width, dark=dark)

    assert found["overflow"] <= 0
    assert max(found["widths"]) <= width
    assert found["cut"] == 0
    assert found["plots"] == 4
    assert found["tables"] == page.count("<table") >= 20
    assert found["requests"] == 0
    assert found["background"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
