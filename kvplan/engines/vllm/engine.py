"""vLLM: which blocks it will allocate, and how many tokens and sessions they hold, release by release (0.6 to 0.33).

The steps are vLLM's own: pages of every layer, groups, bytes per block, blocks, blocks of one request, concurrency,
tokens. Sources: the wheels of the releases named in `versions`; checked against what vLLM's own code returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from kvplan.engines.base import DeploymentKey
from kvplan.engines.vllm.args import NO_EFFECT, Args, Speculation, arg_names, read_args
from kvplan.engines.vllm.checks import check
from kvplan.engines.vllm.drafts import assumed, draft_mixers, retained_tokens
from kvplan.engines.vllm.dtypes import asked_kv, model_dtypes
from kvplan.engines.vllm.flags import flags
from kvplan.engines.vllm.formats import KvDtype
from kvplan.engines.vllm.geometry import Geometry, geometry
from kvplan.engines.vllm.layout import VllmLayout
from kvplan.engines.vllm.mixers import Mixer, Same, mixers_of
from kvplan.engines.vllm.recipe import Recipe
from kvplan.engines.vllm.served import retired
from kvplan.engines.vllm.sessions import InFlight, session_blocks
from kvplan.engines.vllm.settings import batch, is_moe, state_mode
from kvplan.engines.vllm.versions import NEWEST, Rules, default_utilization, rules
from kvplan.errors import BadInput
from kvplan.parallel import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvplan.budget import Budget
    from kvplan.engines.base import Deployment, Layout
    from kvplan.model import ModelSpec

_BOUNDARY_LAYERS = 2
"""Layers at each end that TurboQuant leaves unquantized in models of attention alone."""


@lru_cache(maxsize=4096)
def _layout(key: DeploymentKey) -> VllmLayout:
    deployment = key.deployment
    auto_fit = deployment.max_model_len == -1
    d = replace(deployment, max_model_len=_own_length(deployment.spec)) if auto_fit else deployment
    found, args = rules(d.version), read_args(d.engine_args)
    place = Place(d.parallel, d.gpu.compute_capability, d.kv_dtype, d.block_size, found.release)
    planned = _planned(Same(d.spec), place, args)
    limits = batch(d, args, found, moe=planned.moe)
    flight = InFlight(
        tokens=limits.in_flight_tokens,
        retained=planned.retained_tokens,
        encoder_tokens=limits.max_num_batched_tokens,
        dcp=d.parallel.dcp,
    )
    return VllmLayout(
        geometry=planned.geometry,
        rules=found,
        max_model_len=d.max_model_len,
        batch=limits,
        sessions=session_blocks(Same(planned.geometry), flight),
        dcp=d.parallel.dcp,
        num_gpu_blocks_override=args.num_gpu_blocks_override,
        auto_fit=auto_fit,
        remarks=(*planned.remarks, *_length_remarks(d)),
    )


class Vllm:
    """The engine. It keeps nothing but caches of what models and flags imply."""

    name = "vllm"
    default_version = NEWEST
    gpu_axis: Literal["tp", "pp"] = "tp"
    args = arg_names() | NO_EFFECT

    def layout(self, deployment: Deployment) -> VllmLayout:
        """How this release cuts the cache; `Unsupported` with vLLM's own reason where it refuses.

        `max_model_len` -1: the longest that fits, up to the model's own (`capacity` says which).
        """
        return _layout(DeploymentKey(deployment))

    def default_utilization(self, version: str | None = None) -> float:
        """`gpu_memory_utilization` where the user states none."""
        return default_utilization(version)

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """See `kvplan.engines.vllm.memory`."""
        from kvplan.engines.vllm.memory import budget

        return budget(deployment, layout, given_bytes, rules(deployment.version))

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """`vllm serve` flags that start it as planned."""
        return flags(deployment, max_num_seqs)


@dataclass(frozen=True, slots=True)
class Place:
    """What of a deployment the cut depends on, beside the model and the flags."""

    parallel: Parallelism
    capability: tuple[int, int] | None
    kv_dtype: str
    block_size: int | None
    release: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a model, a place and flags imply for every context, batch and pool."""

    geometry: Geometry
    moe: bool
    retained_tokens: int
    remarks: tuple[str, ...]


@lru_cache(maxsize=4096)
def _planned(same: Same[ModelSpec], place: Place, args: Args) -> Planned:
    spec, found = same.value, rules("{}.{}".format(*place.release))
    own, conv, recurrent = model_dtypes(spec, args, found, place.capability)
    kv = asked_kv(spec, place.kv_dtype, own, found, place.capability)
    check(spec, place.parallel, kv, found)
    speculation = args.speculative_config
    recipe = Recipe(
        rules=found,
        release=found.release,
        capability=place.capability,
        parallel=place.parallel,
        kv=kv,
        own=own,
        conv=conv,
        recurrent=recurrent,
        drafts=speculation.num_speculative_tokens if speculation else 0,
        state_mode=state_mode(spec, args, found),
        block_size=place.block_size,
        chunk_tokens=args.mamba_block_size,
        attention_backend=args.attention_backend,
        skip_layers=_skip_layers(spec, args, kv),
        hybrid_manager=not args.disable_hybrid_kv_cache_manager,
    )
    return Planned(
        geometry=geometry(_mixers(same, place.parallel.pp, speculation, found), recipe),
        moe=is_moe(spec),
        retained_tokens=retained_tokens(spec, speculation, found),
        remarks=tuple(_remarks(spec, place, speculation, found)),
    )


def _mixers(same: Same[ModelSpec], pp: int, speculation: Speculation | None, found: Rules) -> Same[tuple[Mixer, ...]]:
    """Mixers with a cache in the pool; before 0.9 recurrent states lay outside it."""
    mixers = mixers_of(same.value, pp, draft_mixers(same.value, speculation, pp - 1))
    return Same(tuple(m for m in mixers if found.hybrid_groups or m.attention.family != "recurrent"))


def _remarks(spec: ModelSpec, place: Place, speculation: Speculation | None, found: Rules) -> Iterator[str]:
    """What a person should know of the model under this release."""
    yield from filter(None, (retired(spec, found), assumed(speculation)))
    if place.capability is None:
        yield "no compute capability: blocks are those of the Triton kernels"
    if not found.hybrid_groups and any(a.family == "recurrent" for _, a in spec.mixers()):
        yield f"vLLM {found.version} keeps recurrent states outside the pool"


def _length_remarks(deployment: Deployment) -> Iterator[str]:
    longest = deployment.spec.max_position_embeddings
    if longest is not None and deployment.max_model_len > longest:
        yield (
            f"max_model_len {deployment.max_model_len} is above the model's own {longest}: vLLM starts with "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 only"
        )


def _own_length(spec: ModelSpec) -> int:
    if spec.max_position_embeddings is None:
        raise BadInput(f"max_model_len: {spec.name} states no maximum length; give one")
    return spec.max_position_embeddings


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
