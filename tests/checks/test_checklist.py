"""Each rule of the serving checklist, both ways, on constructed plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.catalog import load_gpu, load_model
from kvplan.checks import Item, checklist
from kvplan.checks.kernels import fallback_cost
from kvplan.model import ModelSpec, RopeScaling
from kvplan.plan import Scenario, plan

GIB = 2**30


def model(name: str, **changes: Any) -> ModelSpec:
    return replace(load_model(name), **changes)


def items(spec: str | ModelSpec, gpu: str, **options: Any) -> dict[str, Item]:
    """Checklist items by id."""
    chosen = load_model(spec) if isinstance(spec, str) else spec
    scenario = Scenario(model=chosen, gpu=load_gpu(gpu), **{"context": 8192, **options})
    return {item.id: item for item in checklist(plan(scenario))}


R1 = "deepseek-r1"
YARN = RopeScaling(rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=1.0)
MTP = {"method": "deepseek_mtp", "num_speculative_tokens": 1}
CASES: list[tuple[str, str, str | ModelSpec, str, dict[str, Any]]] = [
    ("mla-kernel", "pass", R1, "h200", {"tp": 8}),
    ("mla-kernel", "pass", R1, "b200", {"tp": 8}),
    ("mla-kernel", "warn", R1, "a100-80gb", {"tp": 16}),
    ("mla-kernel", "warn", "deepseek-v2-lite", "l40s", {}),
    ("mla-kernel", "fail", "deepseek-v2-lite", "h100", {"engine": "transformers"}),
    ("mla-kernel", "fail", "deepseek-v2-lite", "v100-32gb", {"kv_pool_bytes": 4 * GIB}),
    ("mla-kernel", "pass", "deepseek-v2-lite", "rtx-4090", {"engine": "llama.cpp", "kv_pool_bytes": 4 * GIB}),
    ("block-size", "pass", R1, "h200", {"tp": 8}),
    ("block-size", "warn", "deepseek-v2-lite", "h100", {"context": 1024, "block_size": 64}),
    ("fp8-rope", "warn", R1, "h200", {"tp": 8, "kv_dtype": "fp8"}),
    ("fp8-rope", "pass", "deepseek-v3.2", "h200", {"tp": 8, "kv_dtype": "fp8"}),
    ("concurrency", "pass", R1, "h200", {"tp": 8}),
    ("concurrency", "warn", R1, "h200", {"tp": 8, "max_num_seqs": 16}),
    ("concurrency", "warn", "llama-3.1-8b", "h200", {"context": 512, "max_num_seqs": 512}),
    ("gemm-regime", "pass", "llama-3.1-8b", "h100", {}),
    ("yarn", "pass", model(R1, rope_scaling=YARN), "h200", {"tp": 8, "context": 131072}),
    ("yarn", "fail", model(R1, rope_scaling=YARN, max_position_embeddings=2**19), "h200", {"tp": 8, "context": 262144}),
    ("yarn", "warn", model(R1, rope_scaling=replace(YARN, mscale=None, mscale_all_dim=None)), "h200", {"tp": 8}),
    ("tp-replication", "warn", R1, "h200", {"tp": 8}),
    ("tp-replication", "pass", R1, "h200", {"tp": 8, "dcp": 8}),
    ("default-context", "pass", "llama-3.1-8b", "l40s", {"context": 32768}),
    ("default-context", "fail", "llama-3.1-70b", "h100", {"tp": 2, "context": 131072}),
    ("state-blocks", "pass", "qwen3-next-80b-a3b", "h200", {"tp": 2, "max_num_seqs": 64}),
    ("state-blocks", "fail", "qwen3-next-80b-a3b", "h100", {"tp": 2, "kv_pool_bytes": 2 * GIB}),
    ("fp8-hybrid", "warn", "qwen3-next-80b-a3b", "h200", {"tp": 2, "kv_dtype": "fp8"}),
    ("fp8-hybrid", "pass", "kimi-linear-48b-a3b", "h200", {"tp": 2, "kv_dtype": "fp8", "context": 1048576}),
    ("draft", "warn", "deepseek-v3", "h200", {"tp": 8, "engine_args": {"speculative_config": MTP}}),
    ("unified-memory", "warn", "llama-3.1-8b", "gb10", {"gpu_memory_utilization": 0.92}),
    ("unified-memory", "pass", "llama-3.1-8b", "gb10", {"gpu_memory_utilization": 0.5}),
    ("utilization", "pass", "llama-3.1-8b", "h100", {}),
    ("utilization", "warn", "llama-3.1-8b", "h100", {"gpu_memory_utilization": 0.999}),
]  # fmt: skip
ABSENT: list[tuple[str, str, str, dict[str, Any]]] = [
    ("mla-kernel", "llama-3.1-8b", "h100", {}),
    ("block-size", "llama-3.1-8b", "h100", {}),
    ("fp8-rope", R1, "h200", {"tp": 8}),
    ("tp-replication", "llama-3.1-70b", "h200", {"tp": 8}),
    ("state-blocks", "llama-3.1-8b", "h100", {}),
    ("fp8-hybrid", "llama-3.1-8b", "h100", {"kv_dtype": "fp8"}),
    ("draft", R1, "h200", {"tp": 8}),
    ("unified-memory", "llama-3.1-8b", "h100", {}),
    ("utilization", "llama-3.1-8b", "h100", {"engine": "sglang"}),
]


@pytest.mark.parametrize(
    ("rule", "verdict", "spec", "gpu", "options"), CASES, ids=[f"{c[0]}-{c[1]}-{i}" for i, c in enumerate(CASES)]
)
def test_verdicts(rule: str, verdict: str, spec: str | ModelSpec, gpu: str, options: dict[str, Any]) -> None:
    """The rule decides as it should, with figures in its reason, and a change where it does not pass."""
    item = items(spec, gpu, **options)[rule]

    assert (item.verdict, item.reason) == (verdict, item.reason)
    assert any(c.isdigit() for c in item.reason) or rule == "mla-kernel"
    assert bool(item.change) or verdict == "pass"


@pytest.mark.parametrize(("rule", "spec", "gpu", "options"), ABSENT)
def test_rules_say_nothing_where_they_do_not_apply(rule: str, spec: str, gpu: str, options: dict[str, Any]) -> None:
    """No item is better than an empty one."""
    assert rule not in items(spec, gpu, **options)


def test_every_rule_is_tried() -> None:
    """No rule stands here untested."""
    from kvplan.checks import kernels, serving, traps

    assert len({case[0] for case in CASES}) == sum(len(m.CHECKS) for m in (kernels, serving, traps))


def test_failures_come_first() -> None:
    """What must be settled before anything else is read first."""
    found = [i.verdict for i in items("llama-3.1-70b", "h100", tp=2, context=131072).values()]

    assert found == sorted(found, key=("fail", "warn", "pass").index)


def test_the_cost_of_a_missing_kernel() -> None:
    """DeepSeek-V3: 71 times the bytes, and 108 to 121 times the FLOPs from 1k to 128k (calculated from its shapes)."""
    mla = next(a for _, a in load_model("deepseek-v3").mixers() if a.kind == "mla")

    assert round(fallback_cost(mla, 4096)[0]) == 71
    assert 60 < fallback_cost(mla, 1024)[1] < fallback_cost(mla, 131072)[1] < 121
