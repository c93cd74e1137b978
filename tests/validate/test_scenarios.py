"""The ten scenarios hold, and are those of the documents."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.attention.gqa import GroupedQueryAttention  # noqa: E402
from kvplan.validate import scenarios  # noqa: E402
from kvplan.validate.scenarios import SCENARIOS, Scenario  # noqa: E402


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.id)
def test_the_error_is_within_the_bound(scenario: Scenario) -> None:
    assert scenario.run() <= scenario.bound


@pytest.mark.groundtruth
def test_ids_and_bounds_are_those_of_the_documents(groundtruth: Path) -> None:
    stated = yaml.safe_load((groundtruth / "seed_claims.yaml").read_text())["numeric_scenarios"]
    assert [s.id for s in SCENARIOS] == [s["id"] for s in stated]
    assert [s.bound for s in SCENARIOS] == [s.get("bound", 0.0) for s in stated]


@pytest.mark.groundtruth
def test_planned_bytes_are_those_of_the_documents(groundtruth: Path) -> None:
    claims = yaml.safe_load((groundtruth / "seed_claims.yaml").read_text())["claims"]
    stated = {c["id"]: c["bytes"] for c in claims if "bytes" in c}
    kinds = {"mha": scenarios.gqa(128), "gqa8": scenarios.gqa(8), "mla": scenarios.mla()}
    for name, attention in kinds.items():
        assert scenarios.planned_bytes(attention, 30) == stated[f"{name}-4k-30l"]
        assert scenarios.planned_bytes(attention, 1) == stated[f"{name}-4k-layer"]
    assert scenarios.planned_bytes(scenarios.gqa(1), 1) == stated["mqa-4k-layer"]


def test_bytes_are_counted_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is one token too long shows."""
    monkeypatch.setattr(scenarios, "planned_bytes", lambda attention, layers: 0)
    assert scenarios.footprint() == 268435456


def test_rotary_scores_that_ignore_the_distance_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios.Rope, "rotate", lambda self, x, positions: x)
    assert not scenarios.rope_relative() <= 1e-12


def test_a_scenario_s_attention_has_the_reference_dimensions() -> None:
    attention = scenarios.gqa(8)
    assert isinstance(attention, GroupedQueryAttention)
    assert (attention.num_attention_heads, attention.head_dim) == (128, 128)
