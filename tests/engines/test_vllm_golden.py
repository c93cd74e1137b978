"""Every figure that vLLM's own planning code returned, to the last digit, and every refusal in its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy_vllm import golden_rows, verdict


@pytest.mark.groundtruth
@pytest.mark.parametrize("release", ["0.32.0", "0.33.0"])
def test_equals_what_vllm_planned(groundtruth: Path, release: str) -> None:
    """Blocks, bytes, tokens, concurrency, batch limits, refusals: no row of a release differs."""
    verdicts = [verdict(row, groundtruth) for row in golden_rows(groundtruth) if row["vllm"] == release]

    assert verdicts
    assert [(v.row["id"], v.differences) for v in verdicts if v.differences] == []
