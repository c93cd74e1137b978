"""What vLLM sets where nobody does: batch limits, tokens in flight, KV dtype, states of a session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.attention.mamba import Mamba1
from kvplan.engines.vllm.layout import VllmLayout
from kvplan.errors import BadInput, KvplanError, Unsupported
from kvplan.gpu import GpuSpec
from kvplan.model import ModelSpec, Quantization
from tests.engines.toys import H100, heads, model
from tests.engines.vllm_models import (
    FALCON_H1,
    GIB,
    GPT_OSS_20B,
    LLAMA_8B,
    MAMBA2,
    QWEN35_35B,
    QWEN_NEXT,
    V3,
    layout,
    of_gib,
)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "version", "usage", "limits"),
    [
        (H100, "0.33.0", "server", (8192, 1024)),
        (H100, "0.33.0", "llm", (16384, 1024)),
        (of_gib("a100", 80, (8, 0)), "0.33.0", "server", (2048, 256)),
        (of_gib("l4", 24, (8, 9)), "0.33.0", "server", (2048, 256)),
        (of_gib("b200", 178, (10, 0)), "0.33.0", "server", (16384, 1024)),
        (of_gib("b200", 178, (10, 0)), "0.27.1", "server", (8192, 1024)),
        (of_gib("gb10", 119, (12, 1)), "0.33.0", "server", (2048, 256)),
        (of_gib("gb10", 119, (12, 1)), "0.32.0", "server", (8192, 1024)),
        (H100, "0.7.3", "server", (8192, 256)),
    ],
)
def test_batch_defaults(gpu: GpuSpec, version: str, usage: str, limits: tuple[int, int]) -> None:
    """By the GPU's memory, and by whether `vllm serve` or the LLM class starts (`get_batch_defaults`)."""
    found = layout(LLAMA_8B, gpu=gpu, version=version, engine_args={"usage": usage})

    assert (found.max_num_batched_tokens, found.max_num_seqs) == limits


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"max_num_seqs": 16}, (8192, 16)),
        ({"max_num_batched_tokens": 512}, (512, 512)),
        ({"engine_args": {"performance_mode": "throughput"}}, (16384, 2048)),
        ({"max_num_seqs": 2, "tokens": 1024}, (2048, 2)),
    ],
)
def test_stated_limits(options: dict[str, Any], limits: tuple[int, int]) -> None:
    """Fewer tokens than sessions lower the sessions; few short sessions lower the tokens."""
    found = layout(LLAMA_8B, options.pop("tokens", 8192), **options)

    assert (found.max_num_batched_tokens, found.max_num_seqs) == limits


def test_a_step_must_hold_every_session() -> None:
    """vLLM's own check."""
    with pytest.raises(
        BadInput, match=r"max_num_batched_tokens \(8\) must be greater than or equal to max_num_seqs \(16\)"
    ):
        layout(LLAMA_8B, max_num_seqs=16, max_num_batched_tokens=8)


@pytest.mark.parametrize(
    ("version", "options", "batches"),
    [
        ("0.25.1", {}, 1),
        ("0.26.0", {}, 2),
        ("0.33.0", {}, 2),
        ("0.33.0", {"pp": 2}, 3),
        ("0.28.0", {"pp": 2}, 3),
        ("0.33.0", {"engine_args": {"async_scheduling": False}}, 1),
        ("0.32.0", {"engine_args": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}}, 1),
        ("0.33.0", {"engine_args": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}}, 2),
    ],
)
def test_tokens_in_flight(version: str, options: dict[str, Any], batches: int) -> None:
    """Concurrent batches of 8,192 tokens: one a stage, one more where the scheduler runs ahead."""
    assert layout(GPT_OSS_20B, version=version, **options).max_in_flight_tokens == 8192 * batches


def test_windows_are_charged_with_what_is_in_flight() -> None:
    """gpt-oss at 131,072 tokens (vLLM 0.33): 127 + 16,384 tokens in blocks of 16, and one block."""
    found = layout(GPT_OSS_20B, 131072)

    assert found.capacity(40 * GIB).blocks_per_request == (1033, 8192)
    assert "windows are charged with the 16384 tokens in flight" in found.notes


@pytest.mark.parametrize(
    ("quantization", "options", "kv_dtype"),
    [
        (None, {}, "bf16"),
        (None, {"engine_args": {"dtype": "float16"}}, "fp16"),
        (None, {"gpu": of_gib("t4", 15, (7, 5))}, "fp16"),
        (Quantization(quant_method="modelopt", kv_cache_dtype="fp8"), {}, "fp8"),
        (Quantization(quant_method="modelopt", kv_cache_dtype="fp8"), {"version": "0.13.0"}, "bf16"),
        (Quantization(quant_method="compressed-tensors", kv_cache_dtype="fp8"), {}, "fp8"),
        (Quantization(quant_method="compressed-tensors", kv_cache_dtype="none"), {}, "bf16"),
        (Quantization(quant_method="", kv_cache_dtype="fp8"), {}, "bf16"),
        (Quantization(quant_method="modelopt", kv_cache_dtype="fp8"), {"kv_dtype": "bfloat16"}, "bf16"),
    ],
)
def test_kv_dtype_in_force(quantization: Quantization | None, options: dict[str, Any], kv_dtype: str) -> None:
    """What the user says, else what the checkpoint says in a way that vLLM heeds, else the model's dtype."""
    assert layout(replace(LLAMA_8B, quantization=quantization), **options).kv_dtype == kv_dtype


def test_glm_dsa_is_fp8_by_default_on_data_centre_blackwell() -> None:
    """Since 0.32."""
    spec, gpu = replace(V3, model_type="glm_moe_dsa"), of_gib("b200", 178, (10, 0))

    assert layout(spec, gpu=gpu).kv_dtype == "fp8"
    assert layout(spec, gpu=gpu, version="0.31.0").kv_dtype == "bf16"
    assert layout(spec).kv_dtype == "bf16"


@pytest.mark.parametrize(
    ("kv_dtype", "version", "said"),
    [("fp9", None, "did you mean"), ("nvfp4", "0.19.1", "exists since 0.20")],
)
def test_kv_dtypes_that_are_not_there(kv_dtype: str, version: str | None, said: str) -> None:
    """Misspelt, or later than the release."""
    with pytest.raises(KvplanError, match=said):
        layout(LLAMA_8B, kv_dtype=kv_dtype, version=version)


@pytest.mark.parametrize(
    ("spec", "options", "state"),
    [
        (QWEN_NEXT, {}, "bf16"),
        (QWEN35_35B, {}, "fp32"),
        (QWEN35_35B, {"version": "0.16.0", "engine_args": {"enable_prefix_caching": False}}, "bf16"),
        (QWEN_NEXT, {"engine_args": {"mamba_ssm_cache_dtype": "float32"}}, "fp32"),
        (replace(FALCON_H1, model_type="nemotron_h"), {}, "fp32"),
    ],
)
def test_dtype_of_states(spec: ModelSpec, options: dict[str, Any], state: str) -> None:
    """The model's, unless a flag or the model's class says fp32."""
    assert layout(spec, **options).kv_format.of("recurrent_state").name == state


def test_drafted_tokens_widen_convolutions_but_for_mamba1() -> None:
    """Jamba's states stay as they are (vLLM 0.32)."""
    args = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}
    mamba1 = Mamba1(intermediate_size=8192, state_size=16, conv_kernel=4, time_step_rank=256)
    for kind, grows in ((mamba1, False), (MAMBA2, True)):
        spec = model(("0-6", kind), ("7", heads(32, 8, 128)))
        plain, drafting = layout(spec), layout(spec, engine_args=args)
        assert (_state_bytes(drafting) > _state_bytes(plain)) is grows


def _state_bytes(found: VllmLayout) -> int:
    return next(g.pages.own_bytes for g in found.geometry.groups if g.pages.is_state)


@pytest.mark.parametrize(
    ("version", "args", "blocks"),
    [
        ("0.33.0", {}, 3),
        ("0.32.0", {}, 3),
        ("0.31.0", {"mamba_cache_mode": "align"}, 2),
        ("0.33.0", {"enable_prefix_caching": False}, 1),
        ("0.33.0", {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}}, 5),
    ],
)
def test_states_of_a_session(version: str, args: dict[str, Any], blocks: int) -> None:
    """Reuse keeps the last states and, for Mamba-2 since 0.32, one that a prefill exports."""
    found = layout(FALCON_H1, version=version, engine_args=args)
    states = [
        n for n, g in zip(found.capacity(GIB).blocks_per_request, found.groups(), strict=True) if g.growth == "state"
    ]

    assert states == [blocks]


def test_a_state_for_every_block_needs_the_kernels_chunk() -> None:
    """mamba_cache_mode all, kept until 0.31."""
    with pytest.raises(Unsupported, match="give engine_args mamba_block_size"):
        layout(FALCON_H1, version="0.31.0")
    found = layout(FALCON_H1, version="0.31.0", engine_args={"mamba_block_size": 256})

    assert found.block_size % 256 == 0
    assert found.blocks_per_session(8192) == 2 * -(-8192 // found.block_size)


def test_all_is_refused_in_one_release_only() -> None:
    """0.32 drops the mode, 0.33 takes it for align."""
    with pytest.raises(Unsupported, match="Input should be 'align' or 'none'"):
        layout(FALCON_H1, version="0.32.0", engine_args={"mamba_cache_mode": "all"})
    assert layout(FALCON_H1, engine_args={"mamba_cache_mode": "all"}).groups() == layout(FALCON_H1).groups()
