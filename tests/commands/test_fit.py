"""kvplan fit: whole screens, exact cells, the plot, the exit status."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.commands.conftest import Run, same_as_screen

GIVEN = "--weights 30GiB --activation 2GiB --non-torch 1GiB --cuda-graphs 1GiB"
"""All lines of the budget, so that the screens hold whatever the estimates become."""


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fits", f"latent.yaml --gpu bare.yaml --tp 2 --context 32k,4k,16k {GIVEN}"),
        ("pool", "grouped.yaml --gpu bare.yaml --kv-pool 40GiB --context 8k --max-num-seqs 16"),
        ("replicas", f"latent.yaml --gpu bare.yaml --dp 2 --context 32k {GIVEN}"),
        ("too-large", f"grouped.yaml --gpu bare.yaml --context 32k {GIVEN.replace('30GiB', '70GiB')}"),
    ],
)
def test_screen(run: Run, name: str, line: str, width: int) -> None:
    shown = run(f"fit {line}", width)

    assert shown.status == 0
    same_as_screen(f"fit-{name}-{width}", shown.out)


def test_speed_is_stated_where_the_peaks_are_known(run: Run) -> None:
    out = run("fit grouped.yaml --gpu fast.yaml --kv-pool 40GiB --context 8k --max-num-seqs 16").out

    assert "16 sessions of 8k tokens at once, decoding " in " ".join(out.split())
    assert "bound by memory" in out
    assert "tokens/s each" in out


def test_csv_has_exact_values_with_their_units(run: Run) -> None:
    out = run("fit grouped.yaml --gpu fast.yaml --kv-pool 40GiB --context 8k --format csv").out
    rows = {row["figure"]: row for row in csv.DictReader(io.StringIO(out.partition("\n")[2].partition("\n\n")[0]))}

    assert {rows[name]["value_unit"] for name in ("KV pool", "A session, logical")} == {"bytes"}
    assert rows["KV pool"]["value"] == str(40 * 2**30)
    assert rows["A session, logical"]["value"] == str(8192 * 131072)
    assert rows["Longest session"]["value"] == "8192"
    assert float(rows["Decode step"]["value"]) > 0


@pytest.mark.parametrize(("context", "status"), [("4k", 0), ("32k", 3)])
def test_check_exits_with_3_where_it_does_not_fit(run: Run, context: str, status: int) -> None:
    assert run(f"fit grouped.yaml --gpu bare.yaml --kv-pool 1GiB --context {context} --check").status == status


def test_flags_are_left_out_where_nothing_would_start(run: Run) -> None:
    line = "fit grouped.yaml --gpu bare.yaml --context 32k --kv-pool"

    assert "Flags for vllm" in run(f"{line} 8GiB").out
    assert "Flags for vllm" not in run(f"{line} 1GiB").out


def test_a_plot_is_written_beside_the_answer(run: Run) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    shown = run(f"fit latent.yaml --gpu bare.yaml --tp 2 --plot memory.svg {GIVEN}")

    assert shown.status == 0
    drawn = Path("memory.svg").read_text(encoding="utf-8")
    words = ("latent", "weights", "30.00 GiB", "cuda graphs", "KV pool", "80.00 GiB in all", "Memory of one GPU")
    assert all(f">{word}<" in drawn for word in words)
