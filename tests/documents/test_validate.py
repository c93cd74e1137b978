"""The answer of validate: what people read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.documents.validate import answer, roofline
from kvplan.formats import render
from kvplan.validate.result import Comparison, DecodeRow, MemoryCheck, NumericCheck, Validation

ROW = DecodeRow(
    shape={
        "batch": 128,
        "num_heads": 16,
        "context_tokens": 8192,
        "query_tokens": 1,
        "kv_dtype": "bf16",
        "layout": "contiguous",
    },
    kernel="torch-mm",
    measured_s=1e-3,
    wall_s=1e-3,
    spread=0.1,
    predicted_s={"datasheet": 0.4e-3, "microbench": 0.5e-3, "probe": 1.05e-3},
    bytes_per_s=2e9,
    flops_per_s=6e10,
    held_out=True,
)
RUN = Validation(
    device="cpu",
    model="deepseek-v3",
    machine={"name": "Test CPU"},
    probes={"device": {"read_bytes_per_s": 1e10, "gemm_flops_per_s": 1e12}},
    numerics=(
        NumericCheck("a3-rope-split", "sums agree", 5e-14, 1e-12),
        NumericCheck("kernel-torch-mm-bf16-h16", "kernel", 0.007, 2e-2),
    ),
    memory=(
        MemoryCheck("mla-bf16-paged", "storage", 1152, 1152),
        MemoryCheck("mla-bf16-paged", "in use at 962 tokens", 1152, 1152),
        MemoryCheck("mla-bf16-paged", "in use at 1026 tokens", 1152, 1152),
        MemoryCheck("mha-bf16-paged", "storage", 65536, 65536),
        MemoryCheck("mha-bf16-paged", "process", 65536, 99999, 655),
    ),
    decode=(ROW, replace(ROW, held_out=False)),
    comparisons=(
        Comparison("mla absorbed", 1, 1024, 128, 1152, 1e-3),
        Comparison("mla restored", 1, 1024, 128, 1152, 50e-3),
    ),
)


def shown(run: Validation, earlier: dict[str, object] | None = None) -> str:
    return render(answer(run, earlier), "markdown")


def test_the_lead_says_whether_the_plan_holds() -> None:
    lead = answer(RUN).lead
    assert lead.startswith("Test CPU: 2 of 2 numeric and 4 of 5 memory checks hold.")
    assert "predicted with a median error of 5.0%, 100% of them within 20 %: as promised." in lead


def test_an_invalid_run_claims_nothing_and_says_why() -> None:
    busy = replace(RUN, reasons=("tasks waited for a CPU 63% of the time (at most 10%)",))
    document = answer(busy)
    assert "The timings are not valid" in document.lead
    assert "median error" not in document.lead
    assert "Timings invalid: tasks waited for a CPU 63% of the time (at most 10%)." in document.notes


def test_a_prediction_that_misses_is_called_that() -> None:
    bad = replace(RUN, decode=(replace(ROW, predicted_s=ROW.predicted_s | {"probe": 2e-3}),))
    assert "worse than promised" in answer(bad).lead


def test_every_count_of_a_cache_must_agree() -> None:
    table = next(t for t in answer(RUN).tables if t.title == "Memory")
    assert [(row[0], row[3], row[4]) for row in table.rows] == [
        ("mla-bf16-paged", "storage, in use", "pass"),
        ("mha-bf16-paged", "not process", "fail"),
    ]


def test_the_three_levels_stand_together() -> None:
    table = next(t for t in answer(RUN).tables if t.title.startswith("Decode time"))
    assert [row[0] for row in table.rows] == ["datasheet", "microbench", "probe"]
    assert [round(row[1], 2) for row in table.rows] == [0.6, 0.5, 0.05]


def test_probes_are_not_among_the_decode_rows() -> None:
    table = next(t for t in answer(RUN).tables if t.title == "Decode")
    assert [row[0] for row in table.rows] == ["128 x 16 x 8192"]
    assert table.rows[0][-1] == pytest.approx(0.4)


def test_kinds_are_measured_in_times_of_absorbed_mla() -> None:
    table = next(t for t in answer(RUN).tables if t.title.startswith("One layer, 128 heads"))
    assert [row[-1] for row in table.rows] == [1.0, pytest.approx(50)]


def test_an_earlier_run_is_matched_by_shape_and_kernel() -> None:
    earlier = RUN.payload()
    earlier["decode"][0]["measured_s"] = 2e-3
    table = next(t for t in answer(RUN, earlier).tables if t.title == "Beside Test CPU")
    assert [row[-1] for row in table.rows] == [0.5]
    earlier["decode"] = [row | {"kernel": "another"} for row in earlier["decode"]]
    assert next(t for t in answer(RUN, earlier).tables if t.title == "Beside Test CPU").rows == []


def test_the_plot_has_the_measured_points_under_this_device_s_roof() -> None:
    chart = roofline(RUN)
    assert chart is not None
    assert (chart.bytes_per_s, chart.flops_per_s) == (1e10, 1e12)
    assert list(chart.points) == [("128 x 16 x 8192", 30.0, 6e10)]
    assert roofline(replace(RUN, decode=())) is None


def test_a_run_without_timings_shows_numbers_and_bytes_alone() -> None:
    document = answer(replace(RUN, decode=(), comparisons=()))
    assert [t.title for t in document.tables] == ["Numbers", "Kernels against float64", "Memory"]
    assert document.notes == []


def test_every_table_renders() -> None:
    text = shown(RUN, RUN.payload())
    for words in ("a3-rope-split", "mla-bf16-paged", "128 x 16 x 8192", "mla restored", "Beside Test CPU"):
        assert words in text
