"""The engine as a plan uses it: limits, lengths, refusals, notes, flags, budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import Rwkv
from kvplan.attention.none import SharedCache
from kvplan.engines import engine
from kvplan.engines.vllm import ENGINE
from kvplan.errors import BadInput, Unsupported
from tests.engines.toys import deployment, heads, model
from tests.engines.vllm_models import (
    GEMMA_27B,
    GIB,
    LLAMA_8B,
    MAMBA2,
    V4_FLASH,
    layout,
    of_gib,
)  # fmt: skip


def test_found_by_name() -> None:
    """The registry finds it."""
    assert engine("vllm") is ENGINE


def test_a_window_that_the_context_cannot_pass_still_costs_a_block() -> None:
    """Phi-3.5: vLLM goes by the config, which states a window."""
    idle = GroupedQueryAttention(num_attention_heads=32, num_key_value_heads=32, head_dim=96, idle_window=262144)
    assert layout(model(("0-31", idle)), 8192).capacity(40 * GIB).blocks_per_request == (513,)
    assert layout(model(("0-31", heads(32, 32, 96))), 8192).capacity(40 * GIB).blocks_per_request == (512,)


def test_auto_fit_takes_the_longest_context() -> None:
    """Llama-3.1-8B in 4 GiB: the null block costs 16 tokens (vLLM 0.33)."""
    found = layout(LLAMA_8B, -1)

    assert found.capacity(4 * GIB).max_model_len == 32752
    assert found.capacity(4 * GIB).kv_tokens == 32768
    assert found.refusal(4 * GIB) is None
    assert found.capacity(64 * GIB).max_model_len == 131072


def test_auto_fit_needs_the_models_own_length() -> None:
    """Nothing says where to stop otherwise."""
    with pytest.raises(BadInput, match="states no maximum length"):
        layout(replace(LLAMA_8B, max_position_embeddings=None), -1)


def test_a_length_beyond_the_models_own_is_said() -> None:
    """vLLM refuses it unless an environment variable allows it."""
    said = "max_model_len 200000 is above the model's own 131072: vLLM starts with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 only"

    assert layout(LLAMA_8B, 200000).notes == (said,)
    assert layout(LLAMA_8B, 131072).notes == ()


def test_an_override_counts_blocks_whatever_the_pool() -> None:
    """num_gpu_blocks_override."""
    found = layout(LLAMA_8B, engine_args={"num_gpu_blocks_override": 1000})

    assert found.capacity(GIB).num_blocks == found.num_blocks(40 * GIB) == 1000
    assert found.capacity(GIB).kv_tokens == 16000
    assert found.max_context(1) == 8192


def test_a_pool_too_small_is_refused_in_vllms_words() -> None:
    """Llama-3.1-8B in 4 GiB (vLLM 0.33)."""
    assert layout(LLAMA_8B, 131072).refusal(4 * GIB) == (
        "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (4.0 GiB). Based on the available memory, the estimated maximum "
        "model length is 32752. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
        "backend) or decreasing `max_model_len` when initializing the engine."
    )


def test_no_pool_at_all_is_refused() -> None:
    """Nothing is left after the null block."""
    found = layout(LLAMA_8B)

    for pool in (-GIB, 0, found.bytes_per_block):
        assert str(found.refusal(pool)).startswith("No available memory for the cache blocks.")
    assert found.num_blocks(-GIB) == found.max_batch(0, 8192) == found.max_context(0) == 0


def test_the_old_engine_counts_tokens() -> None:
    """V0: 4 GiB of Llama-3.1-8B hold 32,768 tokens."""
    said = str(layout(LLAMA_8B, 131072, version="0.7.3").refusal(4 * GIB))

    assert said.startswith("The model's max seq len (131072) is larger than")
    assert "stored in KV cache (32768)" in said


def test_start_and_run_agree_with_the_longest_context() -> None:
    """One session and several: what `max_batch` says, `max_context` says."""
    found = layout(GEMMA_27B, 131072)
    for sessions in (1, 2, 7, 100):
        tokens = found.max_context(40 * GIB, sessions)
        assert found.max_batch(40 * GIB, tokens) >= sessions
        assert found.max_batch(40 * GIB, tokens + 1) < sessions or tokens == 131072
    assert found.max_context(40 * GIB, 5000) == 0


def test_states_alone_have_no_blocks_of_attention() -> None:
    """Mamba-2 by itself: a state takes a block, as long as the context."""
    found = layout(model(("0-63", MAMBA2)), 8192)

    assert (found.block_size, found.capacity(40 * GIB).blocks_per_request, found.backend) == (8192, (1,), "")


def test_shared_caches_cost_nothing() -> None:
    """Gemma-3n's upper layers read the cache of lower ones."""
    shared = SharedCache(source=heads(8, 2, 256))

    assert layout(model(("0-19", heads(8, 2, 256)), ("20-34", shared))).bytes_per_block == 20 * 2 * 2 * 256 * 2 * 16


def test_cross_attention_is_fixed_by_the_batch() -> None:
    """What an encoder produced: blocks for the longest input that a step may bring."""
    cross = CrossAttention(num_attention_heads=16, num_key_value_heads=16, head_dim=64, encoder_tokens=1500)
    spec = model(("0-3", heads(16, 16, 64)), ("4-7", cross))
    found = layout(spec, 448, max_num_batched_tokens=4096)

    assert found.blocks_per_session(448) - found.blocks_per_session(1) == 27
    assert found.blocks_per_session(1) == 1 + 256


def test_rwkv_is_refused() -> None:
    """vLLM has no such model."""
    with pytest.raises(Unsupported, match="runs no RWKV models"):
        layout(model(("0-3", Rwkv(hidden_size=64, num_heads=1, head_size=64))))


def test_states_lay_outside_the_pool_before_09() -> None:
    """And a note says so."""
    spec = model(("0-2", MAMBA2), ("3", heads(16, 4, 64)))
    found = layout(spec, version="0.8.5")

    assert found.bytes_per_block == 16 * 2 * 4 * 64 * 2
    assert "vLLM 0.8 keeps recurrent states outside the pool" in found.notes


def test_a_gpu_without_compute_capability_is_said() -> None:
    """AMD's: the kernels are taken for Triton's."""
    assert (
        "no compute capability: blocks are those of the Triton kernels"
        in layout(LLAMA_8B, gpu=of_gib("mi300x", 192, None)).notes
    )


def test_layouts_are_made_once() -> None:
    """A grid over contexts and pools cuts the cache once."""
    assert layout(GEMMA_27B, 4096).geometry is layout(GEMMA_27B, 8192).geometry
    assert layout(GEMMA_27B, 4096).geometry is not layout(GEMMA_27B, 4096, kv_dtype="fp8").geometry


def test_groups_tell_their_padding() -> None:
    """Six groups of windows fill 9 or 8 of 10 pages."""
    found = layout(GEMMA_27B)
    padding = [(g.layers, g.padding_bytes // 131072) for g in found.groups()]

    assert sorted(padding) == [(8, 2), (8, 2), (9, 1), (9, 1), (9, 1), (9, 1), (10, 0)]
    assert any("of a block is padding" in note for note in found.notes)


def test_flags_to_paste() -> None:
    """What differs from the defaults, and what the plan is about."""
    d = deployment(
        V4_FLASH, 65536, tp=8, pp=2, kv_dtype="fp8", memory_fraction=0.85, max_num_batched_tokens=4096,
        engine_args={"enable_prefix_caching": False, "usage": "server", "async_scheduling": True},
    )  # fmt: skip

    assert ENGINE.flags(d, 32) == (
        "--tensor-parallel-size 8 --pipeline-parallel-size 2 --max-model-len 65536 --kv-cache-dtype fp8 "
        "--max-num-seqs 32 --max-num-batched-tokens 4096 --gpu-memory-utilization 0.85 --no-enable-prefix-caching "
        "--async-scheduling"
    )


@pytest.mark.parametrize(("asked", "flag"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp8_e5m2", "fp8_e5m2")])
def test_flags_name_dtypes_as_vllm_does(asked: str, flag: str) -> None:
    """`bf16` is no value of --kv-cache-dtype."""
    d = deployment(LLAMA_8B, 8192, kv_dtype=asked)

    assert ENGINE.flags(d, 8) == f"--max-model-len 8192 --kv-cache-dtype {flag} --max-num-seqs 8"


def test_flags_quote_what_a_shell_would_split() -> None:
    """Mappings become JSON, lists become words."""
    args = {
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
        "kv_cache_dtype_skip_layers": ["0", "1"],
    }
    d = deployment(V4_FLASH, 65536, dcp=2, tp=2, block_size=256, engine_args=args)

    assert ENGINE.flags(d, 0) == (
        "--tensor-parallel-size 2 --decode-context-parallel-size 2 --max-model-len 65536 --block-size 256 "
        """--max-num-seqs 1 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' """
        "--kv-cache-dtype-skip-layers 0 1"
    )


@pytest.mark.parametrize(("version", "share", "deducted"), [("0.19.1", 0.9, False), ("0.33.0", 0.92, True)])
def test_the_budget_follows_the_release(version: str, share: float, deducted: bool) -> None:
    """The default share, and whether CUDA graphs are taken off before the pool is."""
    d = deployment(LLAMA_8B, 8192, version=version)
    found = ENGINE.budget(d, ENGINE.layout(d), {"weights": 16 * GIB})

    assert found.requested_bytes == -(-d.gpu.memory_bytes * int(share * 100) // 100)
    assert any(line.label == "cuda_graphs" for line in found.lines) is deducted
    assert ENGINE.default_utilization(version) == share
