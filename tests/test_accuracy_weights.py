"""Parameter totals and loaded weights against the reference data."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from benchmarks.accuracy_weights import RANK_CAUSES, TOTAL_CAUSES, section, starts, totals

pytestmark = pytest.mark.groundtruth

DIFFERENCES = {
    "deepseek-ai__DeepSeek-V2-Lite.json": -27 * (2048 * 1536 + 1536 + 1536 * 3072 - 2048 * 3072),
    "reconstructed/google__flan-t5-xxl.json": 32128 * 4096,
}
"""Differences that their cause explains to the last element."""


def test_every_stated_total_is_met_or_its_difference_has_a_cause(groundtruth: Path) -> None:
    rows = list(totals(groundtruth))
    assert len(rows) > 170
    assert {r.file for r in rows if not r.agrees} == set(TOTAL_CAUSES)
    assert {r.file: r.counted - r.known for r in rows if r.file in DIFFERENCES} == DIFFERENCES


def test_loaded_weights_are_met_within_a_percent_or_the_miss_has_a_cause(groundtruth: Path) -> None:
    rows = list(starts(groundtruth))
    assert len(rows) >= 50
    assert median(abs(r.error) for r in rows) < 0.001
    assert {r.row_id for r in rows if abs(r.error) > 0.01} == set(RANK_CAUSES)


def test_the_section_has_a_line_for_each_row(groundtruth: Path) -> None:
    text = section(groundtruth)
    assert all(r.file in text for r in totals(groundtruth))
    assert all(r.row_id in text for r in starts(groundtruth))
