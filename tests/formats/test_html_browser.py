"""kvplan.formats.html in a real browser: nothing overflows, nothing is fetched, both colour schemes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from kvplan.formats.html import render
from kvplan.table import Document

pytestmark = pytest.mark.browser

HARNESS = """<!doctype html><meta charset="utf-8">
<iframe id="page" style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe><pre id="found"></pre>
<script>
addEventListener("load", () => {{
  const view = document.getElementById("page").contentWindow, root = view.document.documentElement;
  const all = (selector) => [...view.document.querySelectorAll(selector)];
  document.getElementById("found").textContent = JSON.stringify({{
    overflow: root.scrollWidth - root.clientWidth,
    widths: all(".scroll").map((box) => box.getBoundingClientRect().right),
    tables: all("table").filter((table) => table.offsetHeight > 40).length,
    plots: all("svg").filter((plot) => plot.getBoundingClientRect().height > 40).length,
    requests: view.performance.getEntriesByType("resource").length,
    background: view.getComputedStyle(view.document.body).backgroundColor,
    cut: all("p, li, h1, h2, h3, figcaption").filter((text) => text.scrollWidth > text.clientWidth + 1).length,
  }});
}});
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    """The browser's path; the test skips, saying so, where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        pytest.skip("no Chromium on this machine")
    return found


def look_at(page: str, chromium: str, folder: Path, *, width: int, dark: bool) -> dict[str, Any]:
    """What the browser measures in `page` at `width` pixels."""
    harness = folder / "harness.html"
    harness.write_text(HARNESS.format(width=width, page=escape(page)), encoding="utf-8")
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--window-size=1400,1000", "--virtual-time-budget=2000", "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="found">(.+?)</pre>', dom)
    assert found, dom[-2000:]
    return dict(json.loads(unescape(found[1])))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_fits_the_window_in_both_schemes(
    report: Document, chromium: str, tmp_path: Path, width: int, dark: bool
) -> None:
    found = look_at(render(report), chromium, tmp_path, width=width, dark=dark)

    assert found["overflow"] <= 0
    assert max(found["widths"]) <= width
    assert found["cut"] == 0
    assert (found["tables"], found["plots"]) == (4, 1)
    assert found["requests"] == 0
    assert found["background"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
