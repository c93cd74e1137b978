"""What each engine's memory rule leaves for the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.budget import MEASURABLE
from kvplan.catalog import load_gpu, load_model
from kvplan.engines._sglang_memory import default_fraction
from kvplan.plan import Scenario, plan
from kvplan.units import GIB

ENGINES = ("vllm@0.7", "vllm@0.16", "vllm@0.19", "vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers")
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-3-4b")


def scenario(model: str = "llama-3.1-8b", gpu: str = "h100", **options: Any) -> Scenario:
    """A small question."""
    return Scenario(model=load_model(model), gpu=load_gpu(gpu), **{"context": 8192, **options})


@settings(deadline=None)  # the first example reads models and GPUs
@given(st.sampled_from(ENGINES), st.sampled_from(MODELS), st.integers(min_value=2**30, max_value=2**38))
def test_more_memory_never_leaves_less(engine: str, model: str, memory_bytes: int) -> None:
    """The pool is never negative, its range contains it, and one GiB more takes nothing away.

    SGLang's fraction is given, for its default itself falls where a card passes 60 GiB (`memory_hook.py`).
    """
    asked = scenario(model, engine=engine, gpu_memory_utilization=0.85 if engine == "sglang" else None)
    small, large = (replace(asked.gpu, memory_bytes=size) for size in (memory_bytes, memory_bytes + GIB))
    first, second = (
        plan(replace(asked, gpu=gpu, max_num_seqs=16, max_num_batched_tokens=2048)) for gpu in (small, large)
    )
    low, high = first.budget.kv_pool_range
    assert 0 <= low <= first.budget.kv_pool_bytes <= high
    assert first.budget.kv_pool_bytes <= second.budget.kv_pool_bytes
    assert first.max_batch <= second.max_batch


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("label", MEASURABLE)
def test_every_engine_takes_measured_lines(engine: str, label: str) -> None:
    """In its budget, or beside it where it does not subtract them."""
    measured = plan(scenario(engine=engine, given_bytes={label: 3 * GIB})).budget
    line = next(line for line in (*measured.lines, *measured.beside) if line.label == label)
    assert (line.bytes, line.origin) == (3 * GIB, "given")


def activation(model: str, **options: Any) -> float:
    """The activation line in GiB."""
    budget = plan(scenario(model, **{"max_num_seqs": 1024, "max_num_batched_tokens": 8192, **options})).budget
    return next(line.bytes for line in budget.lines if line.label == "activation") / GIB


PRINTED = (
    ("llama-3.1-8b", 1, 1.89), ("qwen3-8b", 1, 2.21), ("phi-4", 1, 1.52), ("qwen2.5-72b", 2, 2.29),
    ("gpt-oss-20b", 1, 2.87), ("mixtral-8x7b", 2, 1.21), ("deepseek-v2-lite", 1, 1.93),
    ("qwen3-30b-a3b", 1, 2.68), ("gemma-2-2b", 1, 3.62), ("gemma-2-27b", 1, 3.66),
)  # fmt: skip
"""(model, TP, activation peak in GiB) of vLLM 0.19 on H100: https://github.com/llm-d-incubation/llm-d-planner/pull/205."""


@pytest.mark.parametrize(("model", "tp", "printed_gib"), PRINTED)
def test_the_profile_run_peaks_as_printed(model: str, tp: int, printed_gib: float) -> None:
    """Sampler, hidden states and expert workspace add up to the second decimal."""
    assert activation(model, tp=tp, engine="vllm@0.19") == pytest.approx(printed_gib, abs=0.015)


@pytest.mark.parametrize(("model", "tp", "printed_gib"), [("gemma-3-12b", 1, 3.94), ("llama-4-scout", 4, 3.19)])
def test_images_of_one_step_live_beside_the_peak(model: str, tp: int, printed_gib: float) -> None:
    """Pixels of a token differ by a factor of four between encoders: to a tenth of a GiB."""
    assert activation(model, tp=tp, engine="vllm@0.19") == pytest.approx(printed_gib, abs=0.1)


def test_sorting_the_vocabulary_costs_more_than_masking_it() -> None:
    """Qwen3-14B: 5.64 GiB through 0.16, 2.23 from 0.17 on (the same pull request)."""
    sorts, masks = (activation("qwen3-14b", engine=f"vllm@0.{minor}") for minor in (16, 17))
    assert (sorts, masks) == (pytest.approx(5.64, abs=0.02), pytest.approx(2.23, abs=0.02))


def test_the_old_engine_prefills_whole_prompts() -> None:
    """By 110 kB a token: Llama-3.1-8B peaks at 17.06 GiB with 20,000 tokens, at 17.98 with 29,000 (issue 10517)."""
    default = {"max_num_seqs": None, "max_num_batched_tokens": None}
    at_20k, at_29k = (
        activation("llama-3.1-8b", gpu="rtx-3090", engine="vllm@0.6", context=n, **default) for n in (20000, 29000)
    )
    assert at_29k - at_20k == pytest.approx(17.98 - 17.06, abs=0.02)
    assert at_20k == pytest.approx(17.06 - 14.99, abs=0.03)


@pytest.mark.parametrize(("context", "step_tokens"), [(1024, 2048), (32768, 32768), (32769, 2048)])
def test_the_old_engine_chunks_long_prompts_only(context: int, step_tokens: int) -> None:
    """Above 32 k tokens it prefills in chunks of 2,048 (`SchedulerConfig`, 0.6 to 0.8)."""
    assert plan(scenario(engine="vllm@0.7", context=context)).layout.max_num_batched_tokens == step_tokens


def test_graphs_are_deducted_since_0_21() -> None:
    """Before, they stand beside the budget; without them (enforce_eager) they are 0."""
    lines = {v: [x.label for x in plan(scenario(engine=f"vllm@0.{v}")).budget.lines] for v in (20, 21)}
    assert "cuda_graphs" not in lines[20]
    assert "cuda_graphs" in lines[21]
    eager = plan(scenario(engine="vllm@0.21", engine_args={"enforce_eager": True})).budget
    assert next(x.bytes for x in eager.lines if x.label == "cuda_graphs") == 0


def test_quantizing_on_load_and_another_dtype_change_the_weights() -> None:
    """Llama-3.1-8B: 14.99 GiB in bfloat16, 8.49 with --quantization fp8, 29.98 in float32 (the same pull request)."""
    sizes = [
        next(x.bytes for x in plan(scenario(engine="vllm@0.19", engine_args=args)).budget.lines if x.label == "weights")
        / GIB
        for args in ({}, {"quantization": "fp8"}, {"dtype": "float32"})
    ]
    assert sizes == pytest.approx([14.99, 8.49, 29.98], rel=0.005)


@pytest.mark.parametrize(("gpu", "fraction"), [("rtx-3090", 0.70), ("h100", 0.83), ("h200", 0.90), ("b200", 0.86)])
def test_sglang_reserves_by_the_size_of_the_gpu(gpu: str, fraction: float) -> None:
    """Defaults of `memory_hook.py` at TP 1."""
    _, deployment = scenario(gpu=gpu, engine="sglang").deployment()
    engine, _ = scenario(engine="sglang").deployment()
    chunk = engine.layout(deployment).max_num_batched_tokens
    assert default_fraction(deployment, chunk) == pytest.approx(fraction, abs=0.01)


def test_tensorrt_llm_takes_a_fraction_of_what_is_left() -> None:
    """0.9 of the memory free after profiling, not of the total."""
    budget = plan(scenario(engine="tensorrt-llm")).budget
    left = next(line.bytes for line in budget.lines if line.label == "left_free")
    assert budget.kv_pool_bytes == pytest.approx(0.9 * (budget.kv_pool_bytes + left), rel=1e-6)


@pytest.mark.groundtruth
def test_the_budget_stays_as_accurate_as_docs_accuracy_says(groundtruth: Path) -> None:
    """Start-up logs of real GPUs: what the page claims, claim by claim, and a cause for every miss."""
    from benchmarks.accuracy_observations import capacity_reason, check
    from benchmarks.observed_models import miss

    checks = check(groundtruth)
    assert {r.row.row_id for r in checks.rates if not r.agrees} == {"lil-82-b"}
    missed = [c for c in checks.capacities if c.error > 0.002]
    assert len(missed) <= 0.1 * len(checks.capacities)
    assert all(capacity_reason(c.row) for c in missed)
    errors = sorted(abs(p.error) for p in checks.pools)
    assert errors[len(errors) // 2] <= 0.01
    assert sum(e <= 0.06 for e in errors) >= 0.9 * len(errors)
    assert sum(p.inside for p in checks.pools) >= 0.85 * len(checks.pools)
    assert all("why" in miss("pool", p.row.row_id) for p in checks.pools if abs(p.error) > 0.06 or not p.inside)
    assert sorted(abs(w.error) for w in checks.weights)[len(checks.weights) // 2] <= 0.005
