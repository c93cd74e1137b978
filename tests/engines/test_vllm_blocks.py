"""Bytes of a token, backends, block sizes: what vLLM's table of kernels implies for each kind of layer.

The figures are those that vLLM 0.32 and 0.33 planned on an 80 GiB GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.engines.vllm.backends import Need, choose, preferred_block
from kvplan.errors import UnknownName, Unsupported
from kvplan.model import ModelSpec
from tests.engines.toys import heads, model
from tests.engines.vllm_models import (
    FALCON_H1,
    GEMMA_27B,
    GPT_OSS_20B,
    LLAMA_8B,
    QWEN_NEXT,
    V3,
    V4_FLASH,
    V32,
    layout,
    of_gib,
)

A80, B80, T80 = (of_gib("80 GiB", 80, capability) for capability in ((8, 0), (10, 0), (7, 5)))


@pytest.mark.parametrize(
    ("kv_dtype", "block", "size"),
    [
        ("auto", 16, 2097152),
        ("fp8", 16, 1048576),
        ("fp8_e4m3", 16, 1048576),
        ("fp8_per_token_head", 16, 1081344),
        ("int8_per_token_head", 16, 1081344),
        ("int4_per_token_head", 16, 557056),
        ("turboquant_k8v4", 32, 1929216),
        ("turboquant_4bit_nc", 32, 1484800),
        ("turboquant_k3v4_nc", 32, 4 * 131072 + 28 * 8 * 118 * 32),
        ("turboquant_3bit_nc", 32, 1255424),
    ],
)
def test_bytes_of_a_block_of_llama_8b(kv_dtype: str, block: int, size: int) -> None:
    """Scales inside heads, TurboQuant's four unquantized layers, its larger blocks (verified against vLLM)."""
    found = layout(LLAMA_8B, kv_dtype=kv_dtype)

    assert (found.block_size, found.bytes_per_block) == (block, size)


@pytest.mark.parametrize(
    ("spec", "options", "backend", "block"),
    [
        (LLAMA_8B, {}, "FLASH_ATTN", 16),
        (LLAMA_8B, {"kv_dtype": "fp8_e5m2"}, "FLASHINFER", 16),
        (LLAMA_8B, {"gpu": B80}, "FLASHINFER", 16),
        (LLAMA_8B, {"gpu": B80, "kv_dtype": "nvfp4"}, "FLASHINFER", 16),
        (LLAMA_8B, {"gpu": T80}, "TRITON_ATTN", 16),
        (LLAMA_8B, {"engine_args": {"attention_backend": "FLEX_ATTENTION"}}, "FLEX_ATTENTION", 16),
        (GPT_OSS_20B, {"gpu": A80}, "TRITON_ATTN", 16),
        (V3, {}, "FLASH_ATTN_MLA", 16),
        (V3, {"kv_dtype": "fp8"}, "FLASHMLA", 64),
        (V3, {"gpu": B80}, "FLASHINFER_MLA", 32),
        (
            V3,
            {"gpu": B80, "engine_args": {"attention_backend": "CUTLASS_MLA"}},
            "CUTLASS_MLA",
            128,
        ),
        (V3, {"engine_args": {"attention_backend": "TRITON_MLA"}}, "TRITON_MLA", 16),
        (V3, {"gpu": A80}, "TRITON_MLA", 16),
        (V32, {}, "FLASH_ATTN_MLA_SPARSE", 64),
        (V32, {"kv_dtype": "fp8"}, "FLASHMLA_SPARSE", 64),
        (V32, {"gpu": B80, "kv_dtype": "fp8"}, "FLASHINFER_MLA_SPARSE", 64),
        (V4_FLASH, {}, "FLASHMLA_SPARSE_DSV4", 4),
        (model(("0-1", heads(16, 4, 192, 128))), {}, "FLASH_ATTN_DIFFKV", 16),
    ],
)
def test_backends_and_their_blocks(spec: ModelSpec, options: dict[str, Any], backend: str, block: int) -> None:
    """The first backend in the GPU's order that can serve the layers; 16 where it takes 16."""
    found = layout(spec, **options)

    assert (found.backend, found.block_size) == (backend, block)


@pytest.mark.parametrize(
    ("options", "kv_dtype", "size"),
    [
        ({}, "bf16", 64 * 61 * (1152 + 132)),
        ({"kv_dtype": "fp8"}, "fp8_ds_mla", 64 * 61 * (656 + 132)),
        ({"gpu": B80, "kv_dtype": "fp8"}, "fp8", 64 * 61 * (576 + 132)),
        ({"gpu": B80, "kv_dtype": "nvfp4_ds_mla"}, "nvfp4_ds_mla", 64 * 61 * (352 + 132)),
    ],
)
def test_records_of_sparse_latents(options: dict[str, Any], kv_dtype: str, size: int) -> None:
    """DeepSeek-V3.2: a record and an indexer key per token; what fp8 means depends on the kernel."""
    found = layout(V32, **options)

    assert (found.kv_dtype, found.bytes_per_block) == (kv_dtype, size)


@pytest.mark.parametrize(
    ("version", "options", "block"),
    [
        ("0.32.0", {"tp": 2}, 544),
        ("0.33.0", {"tp": 2}, 576),  # FlashInfer's kernel exports states every 64 tokens
        ("0.33.0", {"tp": 2, "gpu": A80}, 544),
        ("0.33.0", {"tp": 2, "engine_args": {"enable_prefix_caching": False}}, 544),
        ("0.33.0", {"tp": 2, "kv_dtype": "fp8"}, 1088),
        ("0.32.0", {"tp": 2, "block_size": 64}, 576),
    ],
)
def test_blocks_that_hold_a_state(version: str, options: dict[str, Any], block: int) -> None:
    """Qwen3-Next on two GPUs: 548,864 bytes of state to 1,024 bytes of a token."""
    found = layout(QWEN_NEXT, 262144, version=version, **options)

    assert found.block_sizes[-1] == block
    assert found.block_size == block


def test_attention_beside_a_state_in_one_layer() -> None:
    """Falcon-H1: both kinds have as many layers as the model."""
    found = layout(FALCON_H1)

    assert sorted(g.growth for g in found.groups()) == ["full", "state"]
    assert [g.layers for g in found.groups()] == [4, 4]


@pytest.mark.parametrize(
    ("spec", "skipped", "blocks", "size"),
    [
        (LLAMA_8B, "0,31", (32,), 30 * 65536 + 2 * 131072),
        (GPT_OSS_20B, "sliding_window", (16, 32), 12 * 32768),
        (GEMMA_27B, ["sliding_window"], (16,) * 6 + (32,), 10 * 131072),
    ],
)
def test_layers_that_stay_unquantized(spec: ModelSpec, skipped: Any, blocks: tuple[int, ...], size: int) -> None:
    """A block grows until its fp8 page covers an unquantized one; windows pick blocks of their own in that page."""
    found = layout(spec, kv_dtype="fp8", engine_args={"kv_cache_dtype_skip_layers": skipped})

    assert sorted(found.block_sizes) == list(blocks)
    assert found.bytes_per_block == size


@pytest.mark.parametrize(
    ("version", "options", "block"),
    [
        ("0.8.5", {"block_size": 32}, 64),
        ("0.17.1", {"block_size": 32}, 64),
        ("0.18.1", {"block_size": 32}, 32),
        ("0.14.1", {"gpu": B80}, 128),
        ("0.15.1", {"gpu": B80}, 64),
    ],
)
def test_latent_kernels_used_to_force_their_block(version: str, options: dict[str, Any], block: int) -> None:
    """From 0.8 to 0.17, whatever was asked for."""
    assert layout(V3, version=version, **options).block_size == block


def test_a_backend_that_cannot_serve_says_why() -> None:
    """FlashMLA is Hopper's."""
    with pytest.raises(Unsupported, match=r"Selected backend FLASHMLA is not valid .*compute capability not supported"):
        layout(V3, gpu=B80, engine_args={"attention_backend": "flashmla"})


def test_no_backend_lists_all_reasons() -> None:
    """int4 with sinks on Ampere."""
    need = Need(release=(0, 33), kv_dtype="nvfp4", capability=(7, 5), head_size=64)

    with pytest.raises(
        Unsupported, match=r"No valid attention backend .*FLASH_ATTN: \[.*TRITON_ATTN: \[kv_cache_dtype"
    ):
        choose(need, None, None)


def test_an_unknown_backend_names_its_neighbours() -> None:
    """Backends are named as vLLM names them."""
    with pytest.raises(UnknownName, match="FLASHINFER"):
        layout(LLAMA_8B, engine_args={"attention_backend": "FLASHINFR"})


def test_a_block_that_all_backends_take() -> None:
    """64 is the least common one of 32 and 64; none is refused."""
    latent_fp8 = Need(release=(0, 33), kv_dtype="fp8", capability=(9, 0), head_size=576, latent=True)
    sparse = choose(replace(latent_fp8, capability=(10, 0), sparse=True, nope_head_dim=128), None, None)
    dense = choose(latent_fp8, None, None)

    assert preferred_block([sparse]) == 32
    assert preferred_block([sparse, dense]) == 64


def test_deepseek_v4_has_kernels_of_its_own() -> None:
    """Other sparse backends, other dtypes and other blocks are refused."""
    for options, said in (
        ({"engine_args": {"attention_backend": "FLASHINFER_MLA_SPARSE"}}, "is not a DeepSeek V4 attention backend"),
        ({"kv_dtype": "int8_per_token_head"}, "only supports fp8 kv-cache, got int8_per_token_head"),
        ({"block_size": 128}, "blocks of 128 is not modelled"),
    ):
        with pytest.raises(Unsupported, match=said):
            layout(V4_FLASH, **options)
