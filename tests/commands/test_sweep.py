"""kvplan sweep: whole screens, and the plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run, same_as_screen

DEFAULTS = "{gpu: bare.yaml, kv_pool_bytes: 20GiB, engine: vllm}"
GRID = f"""\
defaults: {DEFAULTS}
grid:
  model: [latent.yaml, grouped.yaml]
  kv_dtype: [bf16, fp8]
  context: [4k, 32k]
"""
MIXED = f"""\
defaults: {DEFAULTS}
scenarios:
  - {{id: fits, model: grouped.yaml, tp: 2, context: 8k}}
  - {{id: too large, model: grouped.yaml, context: 32k, kv_pool_bytes: 1GiB}}
  - {{id: refused, model: grouped.yaml, tp: 3, context: 8k}}
"""


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(("name", "text"), [("grid", GRID), ("mixed", MIXED)])
def test_screen(run: Run, name: str, text: str, width: int) -> None:
    Path("sweep.yaml").write_text(text)
    shown = run("sweep sweep.yaml", width)

    assert shown.status == 0
    same_as_screen(f"sweep-{name}-{width}", shown.out)


def test_a_plot_has_a_line_for_all_that_differs_but_the_context(run: Run) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    Path("sweep.yaml").write_text(GRID)

    assert run("sweep sweep.yaml --plot sessions.svg").status == 0
    drawn = Path("sessions.svg").read_text(encoding="utf-8")
    names = [f"{model}, {dtype}" for model in ("latent", "grouped") for dtype in ("bf16", "fp8")]
    assert all(f">{name}<" in drawn for name in (*names, "Sessions at once", "Context (tokens)"))


def test_there_is_nothing_to_draw_where_nothing_fits(run: Run) -> None:
    Path("sweep.yaml").write_text(GRID.replace("20GiB", "1MiB"))
    shown = run("sweep sweep.yaml --plot sessions.svg")

    assert (shown.status, shown.out, Path("sessions.svg").exists()) == (1, "", False)
    assert shown.err == "kvplan: --plot: no scenario of this sweep fits, so there are no sessions to draw\n"
