"""Which dtypes a model's caches have: its own, the KV cache's after `auto`, those of its states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.engines.vllm.formats import KvDtype, asked_by_checkpoint, kv_dtype, model_dtype

if TYPE_CHECKING:
    from kvplan.engines.vllm.args import Args
    from kvplan.engines.vllm.versions import Rules
    from kvplan.model import ModelSpec

_TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_PASSES_NO_KV_DTYPE = frozenset({"falcon"})
"""Model types whose class builds attention without the cache configuration: unquantized, whatever is asked for."""
_FP8_BY_DEFAULT_ON_SM100 = frozenset({"glm_moe_dsa"})
"""Model types whose configuration class turns `auto` into fp8 there."""


def asked_kv(spec: ModelSpec, asked: str, own: KvDtype, found: Rules, capability: tuple[int, int] | None) -> KvDtype:
    """The KV dtype: the user's, the checkpoint's, or what vLLM makes of `auto` for one kind of model."""
    name = asked_by_checkpoint(spec, found) if asked == "auto" else asked
    if spec.model_type in _PASSES_NO_KV_DTYPE:
        name = asked = "auto"
    by_default = found.glm_dsa_fp8_on_sm100 and spec.model_type in _FP8_BY_DEFAULT_ON_SM100
    if asked == name == "auto" and by_default and capability is not None and capability[0] == 10:
        name = "fp8_e4m3"
    return kv_dtype(name, own.stored, found)


def model_dtypes(
    spec: ModelSpec, args: Args, found: Rules, capability: tuple[int, int] | None
) -> tuple[KvDtype, str, str | None]:
    """The model's own dtype, and torch names of the dtypes of convolution and recurrent states (None: the kind's)."""
    name = model_dtype(spec.torch_dtype, args.dtype, capability)
    conv = args.mamba_cache_dtype if args.mamba_cache_dtype != "auto" else _TORCH_NAMES[name]
    recurrent = args.mamba_ssm_cache_dtype if args.mamba_ssm_cache_dtype != "auto" else _state_dtype(spec, found)
    return kv_dtype("auto", name, found), conv, recurrent


def _state_dtype(spec: ModelSpec, found: Rules) -> str | None:
    """Models whose configuration class sets the dtype of recurrent states: Nemotron-H (fp32 unless stated), Qwen3.5."""
    if found.nemotron_fp32_state and spec.model_type.startswith("nemotron_h"):
        return spec.mamba_ssm_dtype or "float32"
    return spec.mamba_ssm_dtype if found.qwen35_fp32_state and spec.model_type.startswith("qwen3_5") else None
