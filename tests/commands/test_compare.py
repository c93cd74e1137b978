"""kvplan compare: whole screens, and the plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Run, same_as_screen


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("several", "latent.yaml grouped.yaml windowed.yaml --context 4k,32k"),
        ("several-dtypes", "latent.yaml grouped.yaml --context 4k --tp 8 --kv-dtype bf16,fp8"),
        ("one", "latent.yaml --context 4k,32k --explain"),
        ("batch", "windowed.yaml --context 4k,32k --tp 1 --batch 16 --against mha,gqa:3,grouped.yaml"),
    ],
)
def test_screen(run: Run, name: str, line: str, width: int) -> None:
    shown = run(f"compare {line}", width)

    assert shown.status == 0
    same_as_screen(f"compare-{name}-{width}", shown.out)


def test_notes_stand_beside_the_answer(run: Run) -> None:
    assert run("compare windowed.yaml --tp 1 --against gqa:3").err == (
        "note: windowed: gqa:3: 32 query heads do not share 3 KV heads evenly\n"
        "note: Sizes: 1 KiB = 1,024 B, 1 GiB = 2^30 B; k = 1,024 tokens.\n"
    )


def test_without_a_table_of_tp_the_crossing_is_a_note(run: Run) -> None:
    crossing = "From TP 4 on, a token of grouped takes fewer bytes a rank than one of latent."

    assert crossing in run("compare latent.yaml grouped.yaml --tp 1").err
    assert crossing in " ".join(run("compare latent.yaml grouped.yaml --tp 1,8").out.split())


def test_a_plot_is_written_beside_the_answer(run: Run) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    with_plot = run("compare latent.yaml grouped.yaml --tp 4 --plot cache.svg")

    assert with_plot.out == run("compare latent.yaml grouped.yaml --tp 4").out
    drawn = Path("cache.svg").read_text(encoding="utf-8")
    words = ("latent", "grouped", "4k", "128k", "1 GiB", "Cache on one rank at TP 4")
    assert all(f">{word}<" in drawn for word in words)


def test_a_plot_of_another_kind_is_refused_in_one_line(run: Run) -> None:
    shown = run("compare latent.yaml --plot cache.jpg")

    assert (shown.status, shown.out) == (1, "")
    assert shown.err == "kvplan: cache.jpg: a plot is written as .svg, .png or .pdf, not '.jpg'\n"
