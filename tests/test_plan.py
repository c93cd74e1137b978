"""Scenario -> Plan: what is decided for the user, what is refused, and the laws of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.catalog import load_gpu, load_model
from kvplan.errors import BadInput, UnknownName, Unsupported
from kvplan.plan import Scenario, plan

GIB = 2**30


def scenario(**options: Any) -> Scenario:
    """Llama-3.1-8B on one H100 unless told otherwise."""
    model, gpu = options.pop("model", "llama-3.1-8b"), options.pop("gpu", "h100")
    return Scenario(model=load_model(model), gpu=load_gpu(gpu), **{"context": 8192, **options})


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({}, (1, 1, 1)),
        ({"gpus": 8}, (8, 1, 1)),
        ({"gpus": 8, "pp": 2}, (4, 2, 1)),
        ({"gpus": 8, "dp": 4}, (2, 1, 4)),
        ({"tp": 4}, (4, 1, 1)),
        ({"gpus": 8, "tp": 2, "pp": 2, "dp": 2}, (2, 2, 2)),
        ({"gpus": 4, "engine": "llama.cpp"}, (1, 4, 1)),
    ],
)
def test_the_axis_of_the_engine_takes_the_gpus_that_others_leave(
    options: dict[str, Any], ranks: tuple[int, int, int]
) -> None:
    """gpus = tp x pp x dp; llama.cpp deals out layers, the others shard."""
    parallel = scenario(**options).parallelism()

    assert (parallel.tp, parallel.pp, parallel.dp) == ranks


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"gpus": 8, "tp": 3}, BadInput, "gpus: 8 is not tp 3"),
        ({"tp": 6}, Unsupported, "must be divisible by tensor parallel size"),
        ({"engine": "vlm"}, UnknownName, "vllm"),
        ({"kv_dtype": "fp9"}, UnknownName, "fp8"),
        ({"kv_dtype": "fp8_ds_mla"}, (BadInput, Unsupported, UnknownName), "fp8_ds_mla"),
        ({"engine_args": {"enable_prefix_cachin": True}}, UnknownName, "enable_prefix_caching"),
        ({"tp": 4, "dcp": 3}, BadInput, "dcp"),
        ({"engine": "llama.cpp", "tp": 2}, Unsupported, "--pp"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: Any, text: str) -> None:
    """In one line that names the option."""
    with pytest.raises(error, match=text) as found:
        plan(scenario(**options))

    assert "\n" not in str(found.value).strip()


def test_a_given_pool_replaces_the_budget() -> None:
    """40 GiB at 131,072 B a token: 327,680 tokens; block 0 is never handed out, so four of 64k run, not five."""
    found = plan(scenario(kv_pool_bytes=40 * GIB, context=65536))

    assert (found.budget.lines, found.capacity.kv_tokens, found.max_batch) == ((), 327680, 4)


def test_not_fitting_is_an_answer() -> None:
    """Bytes that are missing, no session, no error."""
    found = plan(scenario(model="llama-3.1-70b", tp=1))

    assert not found.fits
    assert found.max_batch == 0
    assert found.step is None
    assert found.shortfall_bytes > 50 * GIB


def test_replicas_hold_different_sessions() -> None:
    """DP attention: the batch of the system is dp times a rank's."""
    found = plan(scenario(model="deepseek-v2-lite", dp=4))

    assert found.batch == 4 * found.max_batch
    assert any("4" in note for note in found.notes)


ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


@given(st.sampled_from(ENGINES), st.integers(64 * 2**20, 64 * GIB), st.integers(0, 8 * GIB), st.integers(256, 131072))
@settings(max_examples=60, deadline=None)
def test_laws(engine: str, pool: int, more: int, context: int) -> None:
    """More memory never fits fewer; reserved is at least logical; the longest context fits, where any does."""
    small = plan(scenario(engine=engine, kv_pool_bytes=pool, context=context))
    large = plan(scenario(engine=engine, kv_pool_bytes=pool + more, context=context))

    assert small.max_batch <= large.max_batch
    assert small.max_context_tokens <= large.max_context_tokens <= context
    assert small.session_bytes_reserved >= small.session_bytes_logical
    assert small.shortfall_bytes >= large.shortfall_bytes >= 0
    if small.max_context_tokens:
        again = plan(replace(small.scenario, context=small.max_context_tokens))
        assert again.max_batch >= 1


@pytest.mark.parametrize("version", ["0.6.6", "0.8.5", "0.11.0", "0.19.1", "0.25.1", "0.33"])
def test_every_vllm_release_plans_a_plain_model_alike(version: str) -> None:
    """Blocks of a plain model are the pool over 2 MiB in every release."""
    found = plan(scenario(engine=f"vllm@{version}", kv_pool_bytes=40 * GIB))

    assert (found.capacity.block_size, found.capacity.num_blocks) == (16, 20480)
