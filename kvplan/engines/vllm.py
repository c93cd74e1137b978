"""vLLM: which blocks it will allocate, and how many tokens and sessions they hold, release by release (0.6 to 0.33).

The steps are vLLM's own: pages of every layer, groups, bytes per block, blocks, blocks of one request, concurrency, tokens.
Sources: the wheels of the releases named in `_vllm_versions`; vllm.md; checked against what vLLM's planning code returned.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.engines._vllm_args import Args, Speculation, read_args
from kvplan.engines._vllm_checks import check
from kvplan.engines._vllm_drafts import assumed, draft_mixers, retained_tokens
from kvplan.engines._vllm_flags import flags
from kvplan.engines._vllm_formats import KvDtype, asked_by_checkpoint, kv_dtype, model_dtype
from kvplan.engines._vllm_geometry import Geometry, geometry
from kvplan.engines._vllm_layout import VllmLayout
from kvplan.engines._vllm_mixers import Mixer, Same, mixers_of
from kvplan.engines._vllm_pages import InFlight, blocks_of
from kvplan.engines._vllm_recipe import Recipe
from kvplan.engines._vllm_settings import batch, state_mode
from kvplan.engines._vllm_versions import NEWEST, Rules, default_utilization, rules
from kvplan.errors import BadInput
from kvplan.parallel import Parallelism

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvplan.budget import Budget
    from kvplan.engines.base import Deployment, Layout
    from kvplan.model import ModelSpec

_BOUNDARY_LAYERS = 2
"""Layers at each end that TurboQuant leaves unquantized in models of attention alone."""


class Vllm:
    """The engine. It keeps nothing but caches of what models and flags imply."""

    name = "vllm"
    default_version = NEWEST

    def layout(self, deployment: Deployment) -> VllmLayout:
        """How this release cuts the cache; `Unsupported` with vLLM's own reason where it refuses.

        `max_model_len` -1: the longest that fits, up to the model's own (`capacity` says which).
        """
        found, args, spec = rules(deployment.version), read_args(deployment.engine_args), deployment.spec
        limits = batch(deployment, args, found)
        planned = _planned(deployment, args, found)
        flight = InFlight(
            tokens=limits.in_flight_tokens,
            retained=retained_tokens(spec, args.speculative_config, found),
            encoder_tokens=limits.max_num_batched_tokens,
            dcp=deployment.parallel.dcp,
        )
        return VllmLayout(
            geometry=planned,
            rules=found,
            max_model_len=_own_length(spec) if deployment.max_model_len == -1 else deployment.max_model_len,
            batch=limits,
            laws=tuple(blocks_of(g.pages, flight) for g in planned.groups),
            dcp=deployment.parallel.dcp,
            num_gpu_blocks_override=args.num_gpu_blocks_override,
            auto_fit=deployment.max_model_len == -1,
            assumption=assumed(spec, args.speculative_config),
        )

    def default_utilization(self, version: str | None = None) -> float:
        """`gpu_memory_utilization` where the user states none."""
        return default_utilization(version)

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """One GPU's memory: total x gpu_memory_utilization, less weights, the profiled peak and graphs."""
        from kvplan.engines._vllm_budget import budget

        return budget(deployment, layout, given_bytes)

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """`vllm serve` flags that start it as planned."""
        return flags(deployment, max_num_seqs)


def _own_length(spec: ModelSpec) -> int:
    if spec.max_position_embeddings is None:
        raise BadInput(f"max_model_len: {spec.name} states no maximum length; give one")
    return spec.max_position_embeddings


def _planned(deployment: Deployment, args: Args, found: Rules) -> Geometry:
    """The geometry of this deployment, computed once for all contexts, batches and pools."""
    spec, parallel, gpu = deployment.spec, deployment.parallel, deployment.gpu
    own, conv, recurrent = _dtypes(spec, args, found, gpu.compute_capability)
    kv = kv_dtype(_asked_dtype(deployment, found), own.stored, found)
    _check(Same(spec), parallel, kv)
    speculation = args.speculative_config
    return geometry(
        _mixers(Same(spec), parallel.pp, speculation, found.engine_core == "v1" and found.hybrid_groups),
        Recipe(
            rules=found,
            release=found.release,
            capability=gpu.compute_capability,
            parallel=parallel,
            kv=kv,
            own=own,
            conv=conv,
            recurrent=recurrent,
            drafts=speculation.num_speculative_tokens if speculation else 0,
            state_mode=state_mode(spec, args, found),
            block_size=deployment.block_size,
            chunk_tokens=args.mamba_block_size,
            attention_backend=args.attention_backend,
            skip_layers=_skip_layers(spec, args, kv),
            hybrid_manager=not args.disable_hybrid_kv_cache_manager,
        ),
    )


@lru_cache(maxsize=1024)
def _check(same: Same[ModelSpec], parallel: Parallelism, kv: KvDtype) -> None:
    check(same.value, parallel, kv)


@lru_cache(maxsize=1024)
def _mixers(
    same: Same[ModelSpec], pp: int, speculation: Speculation | None, states_in_pool: bool
) -> Same[tuple[Mixer, ...]]:
    """Mixers with a cache in the pool; before 0.9 recurrent states lay outside it."""
    mixers = mixers_of(same.value, pp, draft_mixers(same.value, speculation, pp - 1))
    return Same(tuple(m for m in mixers if states_in_pool or m.attention.family != "recurrent"))


def _asked_dtype(deployment: Deployment, found: Rules) -> str:
    """The KV dtype by name: the user's, the checkpoint's, or what vLLM makes of `auto` for one model."""
    if deployment.kv_dtype != "auto":
        return deployment.kv_dtype
    name = asked_by_checkpoint(deployment.spec, found)
    capability = deployment.gpu.compute_capability
    fp8_by_default = found.glm_dsa_fp8_on_sm100 and deployment.spec.model_type == "glm_moe_dsa"
    return "fp8_e4m3" if name == "auto" and fp8_by_default and capability and capability[0] == 10 else name


def _dtypes(
    spec: ModelSpec, args: Args, found: Rules, capability: tuple[int, int] | None
) -> tuple[KvDtype, str, str | None]:
    """The model's own dtype, and the torch names of the dtypes of convolution and recurrent states (None: the kind's)."""
    name = model_dtype(spec.torch_dtype, args.dtype, capability)
    conv = args.mamba_cache_dtype if args.mamba_cache_dtype != "auto" else _TORCH_NAMES[name]
    recurrent = args.mamba_ssm_cache_dtype if args.mamba_ssm_cache_dtype != "auto" else _state_dtype(spec, found)
    return kv_dtype("auto", name, found), conv, recurrent


_TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _state_dtype(spec: ModelSpec, found: Rules) -> str | None:
    """Models whose configuration class sets the dtype of recurrent states: Nemotron-H (fp32 unless stated), Qwen3.5."""
    if found.nemotron_fp32_state and spec.model_type.startswith("nemotron_h"):
        return spec.mamba_ssm_dtype or "float32"
    return spec.mamba_ssm_dtype if found.qwen35_fp32_state and spec.model_type.startswith("qwen3_5") else None


def _skip_layers(spec: ModelSpec, args: Args, kv: KvDtype) -> frozenset[str]:
    """Layers that keep the model's dtype: the user's, and TurboQuant's first and last two in models without states."""
    if not kv.quantized:
        return frozenset()
    skips = set(args.kv_cache_dtype_skip_layers)
    if kv.even_slots and all(a.family != "recurrent" for _, a in spec.mixers()):
        layers = spec.num_hidden_layers
        ends = min(_BOUNDARY_LAYERS, layers // 2)
        skips |= {str(i) for i in (*range(ends), *range(layers - ends, layers))}
    return frozenset(skips)


ENGINE = Vllm()
