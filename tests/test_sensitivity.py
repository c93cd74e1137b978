"""kvplan.sensitivity: each notch is the plan with one thing changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.plan import Plan, Scenario, plan
from kvplan.sensitivity import notches
from tests import small

BASE = Scenario(model=small.GROUPED, gpu=small.GPU, gpus=4, tp=4, context=16384, gpu_memory_utilization=0.9)


def changes(scenario: Scenario) -> dict[str, Plan | None]:
    return {notch.change: notch.plan for notch in notches(plan(scenario))}


def test_each_setting_moves_by_one_notch() -> None:
    assert [*changes(BASE)] == [
        "--tp 8", "--tp 2", "--tp 2 --dp 2", "--kv-dtype fp8", "--gpu-memory-utilization 0.95",
        "--gpu-memory-utilization 0.85", "--context 32k", "--context 8k",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("--tp 8", replace(BASE, tp=8, gpus=None)),
        ("--tp 2 --dp 2", replace(BASE, tp=2, dp=2, gpus=None)),
        ("--kv-dtype fp8", replace(BASE, kv_dtype="fp8")),
        ("--gpu-memory-utilization 0.95", replace(BASE, gpu_memory_utilization=0.95)),
        ("--context 8k", replace(BASE, context=8192)),
    ],
)
def test_a_notch_is_the_plan_of_the_changed_scenario(change: str, expected: Scenario) -> None:
    found = changes(BASE)[change]

    assert found
    assert found.scenario == expected
    assert found.batch == plan(expected).batch


def test_experts_spread_over_the_replicas_of_attention() -> None:
    found = changes(replace(BASE, model=small.LATENT))["--tp 2 --dp 2 --ep 4"]

    assert found
    assert found.deployment.parallel.ep == 4


def test_a_narrow_cache_moves_to_16_bit() -> None:
    assert "--kv-dtype bf16" in changes(replace(BASE, kv_dtype="fp8"))


def test_what_cannot_move_is_left_out() -> None:
    moved = [*changes(replace(BASE, context=32768, gpu_memory_utilization=0.97, gpus=1, tp=1))]

    assert moved == ["--tp 2", "--kv-dtype fp8", "--gpu-memory-utilization 0.92", "--context 16k"]


def test_a_given_pool_has_no_memory_fraction_to_move() -> None:
    assert not [c for c in changes(replace(BASE, kv_pool_bytes=small.GIB)) if "utilization" in c]


def test_a_default_fraction_moves_from_what_it_comes_to() -> None:
    share = plan(replace(BASE, gpu_memory_utilization=None)).budget.requested_bytes / (80 * small.GIB)

    assert f"--gpu-memory-utilization {share - 0.05:.2f}" in changes(replace(BASE, gpu_memory_utilization=None))


def test_a_refusal_keeps_its_reason() -> None:
    odd = replace(BASE, tp=32, gpus=None)
    refused = {notch.change: notch.refusal for notch in notches(plan(odd)) if notch.plan is None}

    assert [*refused] == ["--tp 64"]
    assert "divisible" in refused["--tp 64"]
