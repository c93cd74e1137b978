"""What vLLM refuses, in its own words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.engines.vllm import ENGINE
from kvplan.errors import Unsupported
from kvplan.mlp import DenseMlp, MoeMlp
from kvplan.model import LayerGroup, ModelSpec, Quantization
from tests.engines.toys import deployment, heads, model
from tests.engines.vllm_models import GEMMA_12B, GPT_OSS_20B, LLAMA_8B, MAMBA2, QWEN_NEXT, V3, V4_FLASH, V32, of_gib


def refusal(spec: ModelSpec, **options: Any) -> str:
    with pytest.raises(Unsupported) as error:
        ENGINE.layout(deployment(spec, **options))
    return str(error.value)


def with_mlp(mlp: DenseMlp | MoeMlp, block: tuple[int, ...] | None = None, method: str = "fp8") -> ModelSpec:
    """Two layers of attention with an MLP, in FP8 blocks where `block` is given."""
    spec = model(("0-1", heads(64, 16, 128)))
    group = LayerGroup(layers="0-1", attention=spec.layer_groups[0].attention, mlp=mlp)
    quantization = Quantization(quant_method=method, weight_format="fp8_block", block=block) if block else None
    return replace(spec, hidden_size=4096, layer_groups=(group,), quantization=quantization)


def with_scales(spec: ModelSpec, method: str) -> ModelSpec:
    """A checkpoint that brings FP8 scales for KV."""
    return replace(spec, quantization=Quantization(quant_method=method, weight_format="fp8", kv_cache_dtype="fp8"))


A80, B80 = of_gib("a80", 80, (8, 0)), of_gib("b80", 80, (10, 0))
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
NARROW = model(("0-1", heads(16, 4, 192, 128)))


def test_heads_must_share_out() -> None:
    """Qwen2.5-0.5B on four GPUs (vLLM 0.33)."""
    assert refusal(model(("0-23", heads(14, 2, 64))), tp=4) == (
        "Total number of attention heads (14) must be divisible by tensor parallel size (4)."
    )


def test_kv_heads_share_out_or_are_copied() -> None:
    """Neither 6 into 4 nor 4 into 6."""
    assert refusal(model(("0-1", heads(24, 6, 64))), tp=4).startswith("6 is not divisible by 4")


def test_groups_of_mamba_share_out_or_are_one() -> None:
    """Nemotron-3 on 16 GPUs (vLLM 0.33)."""
    assert refusal(model(("0", MAMBA2), ("1", heads(64, 16, 128))), tp=16) == (
        "If tensor parallel world size does not divide num_groups, then num_groups must equal 1."
    )


def test_fp8_blocks_of_a_rank_must_be_whole() -> None:
    """Qwen3-32B-FP8 on 16 GPUs (vLLM 0.33); in bf16 it runs."""
    mlp = DenseMlp(intermediate_size=25600)

    assert refusal(with_mlp(mlp, (128, 128)), tp=16) == (
        "Weight input_size_per_partition = 1600 is not divisible by weight quantization block_k = 128."
    )
    assert ENGINE.layout(deployment(with_mlp(mlp), tp=16)).block_size == 16


@pytest.mark.parametrize(
    ("version", "method", "size", "refused"),
    [
        ("0.28.0", "fp8", 1536, True),
        ("0.29.0", "fp8", 1536, False),  # blocks of 64 divide 192
        ("0.29.0", "compressed-tensors", 1536, True),
        ("0.29.0", "fp8", 1600, True),  # 200: only blocks of 8 would
        ("0.28.0", "fp8", 2048, False),
    ],
)
def test_fp8_experts_take_finer_blocks_since_029(version: str, method: str, size: int, refused: bool) -> None:
    """Qwen3-235B-FP8 on 8 GPUs has 192 columns of an expert on each."""
    experts = MoeMlp(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=size)
    spec = with_mlp(experts, (128, 128), method)

    if refused:
        assert refusal(spec, tp=8, version=version) == (
            f"The output_size of gate's and up's weight = {size // 8} is not divisible by weight quantization "
            "block_n = 128."
        )
    else:
        assert ENGINE.layout(deployment(spec, tp=8, version=version)).block_size == 16


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        (GEMMA_12B, {"kv_dtype": "turboquant_k8v4"}, "TURBOQUANT: [sliding window not supported]"),
        (LLAMA_8B, {"kv_dtype": "turboquant_k8v4", "gpu": B80}, "No KV cache layout satisfies every supported set"),
        (V3, {"kv_dtype": "fp8", "gpu": A80}, "not supported by the Triton MLA backend (compute capability 8.0)"),
        (GPT_OSS_20B, {"kv_dtype": "fp8", "gpu": A80}, "not supported by the Triton attention backend"),
        (NARROW, {"kv_dtype": "fp8", "gpu": B80}, "FlashAttention does not support fp8 kv-cache on this device."),
        (V32, {"kv_dtype": "fp8_e4m3", "version": "0.29.0"}, "FLASHINFER_MLA_SPARSE_SM90: [new in 0.30]"),
        (with_scales(LLAMA_8B, "modelopt"), {"kv_dtype": "fp8_e5m2"}, "fp8_e5m2 kv-cache is not supported with fp8"),
        (with_scales(V32, "modelopt"), {"version": "0.29.0"}, "kv dtype 'fp8_e4m3'"),
        (replace(GPT_OSS_20B, model_type="gpt_oss"), {"tp": 16}, "copies no KV heads: tensor parallel size 16"),
        (replace(LLAMA_8B, architecture="Zamba2ForCausalLM"), {"pp": 2}, "Pipeline parallelism is not supported"),
        (V4_FLASH, {"engine_args": {"disable_hybrid_kv_cache_manager": True}}, "needs the hybrid KV cache manager"),
        (model(("0-3", MAMBA2)), {"tp": 4, "dcp": 2}, "needs layers of attention"),
        (LLAMA_8B, {"engine_args": MTP}, "Unsupported speculative method: 'mtp'"),
    ],
)
def test_what_kernels_and_model_classes_cannot(spec: ModelSpec, options: dict[str, Any], said: str) -> None:
    """Each as vLLM 0.32's own code refused it on a random deployment, or for the same cause."""
    assert said in refusal(spec, **options)


def test_falcon_leaves_its_cache_unquantized() -> None:
    """Its class builds attention without the cache configuration (0.11 to 0.33)."""
    found = ENGINE.layout(deployment(replace(LLAMA_8B, model_type="falcon"), kv_dtype="fp8"))

    assert (found.kv_dtype, found.bytes_per_block) == ("bf16", 2097152)


def test_nvfp4_is_not_for_latents() -> None:
    """vLLM's `config/vllm.py`."""
    assert refusal(V3, kv_dtype="nvfp4").startswith("nvfp4 KV cache is not supported with MLA")


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        (GPT_OSS_20B, {"tp": 16, "dcp": 2}, "DCP not support sliding window."),
        (V4_FLASH, {"tp": 4, "dcp": 2}, "DCP not support sliding window."),
        (LLAMA_8B, {"tp": 8, "dcp": 2}, "requires `--tensor-parallel-size` (8) to be greater than"),
        (
            LLAMA_8B,
            {"tp": 16, "dcp": 4},
            "`--decode-context-parallel-size` (4) exceeds the maximum supported value (2)",
        ),
        (model(("0-1", heads(24, 8, 64))), {"tp": 24, "dcp": 2}, "query heads per KV head (3) must be divisible by"),
        (V3, {"tp": 8, "dcp": 8, "version": "0.9.2"}, "vLLM 0.9: has no decode context parallelism"),
        (QWEN_NEXT, {"tp": 8, "dcp": 4, "version": "0.30.0"}, "DCP not support mamba now."),
    ],
)
def test_what_a_sequence_cannot_be_divided_over(spec: ModelSpec, options: dict[str, Any], said: str) -> None:
    """Windows never; states since 0.31; heads only where ranks would copy them."""
    assert said in refusal(spec, **options)


@pytest.mark.parametrize(
    ("spec", "version", "said"),
    [
        (V4_FLASH, "0.19.1", "vLLM 0.19: serves no model with compressed; 0.20 is the first that does"),
        (V32, "0.10.2", "vLLM 0.10: serves no model with sparse mla; 0.11 is the first that does"),
        (QWEN_NEXT, "0.9.2", "vLLM 0.9: serves no model with gated_deltanet; 0.10 is the first that does"),
        (GPT_OSS_20B, "0.9.2", "vLLM 0.9: serves no model with attention sinks; 0.10 is the first that does"),
    ],
)
def test_kinds_that_a_release_does_not_serve(spec: ModelSpec, version: str, said: str) -> None:
    """A release plans nothing for layers that it has no model of."""
    assert refusal(spec, version=version) == said


def test_a_dropped_architecture_is_said() -> None:
    """Qwen-14B-Chat's class was served until 0.23."""
    spec = replace(LLAMA_8B, architecture="QWenLMHeadModel")
    said = "Model architecture QWenLMHeadModel was supported in vLLM until v0.23, and is not supported anymore"

    assert said in ENGINE.layout(deployment(spec, version="0.33.0")).notes
    assert ENGINE.layout(deployment(spec, version="0.23.0")).notes == ()
