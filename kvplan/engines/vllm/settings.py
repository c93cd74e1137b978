"""What vLLM sets where the user does not: batch sizes by GPU, batches in flight, prefix caching and the state mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.engines.vllm.args import Args
from kvplan.errors import BadInput, Unsupported
from kvplan.mlp import MoeMlp
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment
    from kvplan.engines.vllm.versions import Rules
    from kvplan.model import ModelSpec

_LARGE: Mapping[str, tuple[int, int]] = {"llm": (16384, 1024), "server": (16384, 1024)}
_MEDIUM: Mapping[str, tuple[int, int]] = {"llm": (16384, 1024), "server": (8192, 1024)}
_SMALL: Mapping[str, tuple[int, int]] = {"llm": (8192, 256), "server": (2048, 256)}
"""(max_num_batched_tokens, max_num_seqs) by usage (`EngineArgs.get_batch_defaults`)."""
_V0_CHUNKED_ABOVE = 32 * 1024
"""Lengths above which the V0 engine prefills in chunks of 2,048 tokens; below, a step takes a whole prompt (0.6 to 0.8,
`SchedulerConfig`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the scheduler runs at once. `in_flight_tokens`: scheduled and not settled, over all concurrent batches."""

    max_num_seqs: int
    max_num_batched_tokens: int
    in_flight_tokens: int


def batch(deployment: Deployment, args: Args, rules: Rules, *, moe: bool) -> Batch:
    """Batch limits after the engine's defaults, and the tokens in flight that they imply."""
    tokens, seqs = _defaults(deployment, rules)[args.usage]
    if args.performance_mode == "throughput":
        tokens, seqs = 2 * tokens, 2 * seqs
    seqs = deployment.max_num_seqs or seqs
    if deployment.max_num_batched_tokens is None:
        tokens = min(seqs * deployment.max_model_len, tokens)
    else:
        tokens = deployment.max_num_batched_tokens
    if deployment.max_num_seqs is None:
        seqs = min(seqs, tokens)
    if tokens < seqs:
        raise BadInput(f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})")
    batches = _concurrent_batches(deployment.parallel.pp, args, rules, moe=moe) if rules.batches_in_flight else 1
    return Batch(max_num_seqs=seqs, max_num_batched_tokens=tokens, in_flight_tokens=batches * tokens)


def _defaults(deployment: Deployment, rules: Rules) -> Mapping[str, tuple[int, int]]:
    gpu, length = deployment.gpu, deployment.max_model_len
    memory_bytes, small_chip = gpu.memory_bytes, False
    if rules.engine_core == "v0":
        whole = (2048 if length > _V0_CHUNKED_ABOVE else max(length, 2048), 256)
        return {"llm": whole, "server": whole}
    if rules.batch_by_160_gib and memory_bytes >= 160 * GIB:
        return _LARGE
    if rules.a100_small_batch:
        small_chip = "a100" in gpu.name.lower()
    if rules.gb10_small_batch:
        small_chip = small_chip or gpu.compute_capability == (12, 1)
    return _MEDIUM if memory_bytes >= 70 * GIB and not small_chip else _SMALL


def _concurrent_batches(pp: int, args: Args, rules: Rules, *, moe: bool) -> int:
    """Batches that the scheduler keeps going: one per pipeline stage, and one more to overlap where it runs ahead."""
    overlapping = args.async_scheduling if args.async_scheduling is not None else _async_by_default(args, rules)
    if not overlapping:
        return pp
    pipelined = rules.async_pipeline == "always" or (rules.async_pipeline == "dense" and not moe)
    return pp + 1 if pp == 1 or pipelined else pp


def _async_by_default(args: Args, rules: Rules) -> bool:
    speculation = args.speculative_config
    if speculation is None or speculation.keeps_cache:
        return True
    return rules.async_ngram and speculation.method not in {"suffix", "custom_class"}


def is_moe(spec: ModelSpec) -> bool:
    """Whether any layer has routed experts."""
    return any(isinstance(g.mlp, MoeMlp) for g in spec.layer_groups)


def prefix_caching(spec: ModelSpec, args: Args, rules: Rules) -> bool:
    """Whether prefix caching is on: by default where the kind of model supports it."""
    families = {a.family for _, a in spec.mixers()} - {"none"}
    if args.enable_prefix_caching is not None:
        return args.enable_prefix_caching
    if "recurrent" not in families:
        return "cross" not in families
    return rules.hybrid_prefix_caching and len(families) > 1


def state_mode(spec: ModelSpec, args: Args, rules: Rules) -> str:
    """`mamba_cache_mode` in force: none, align or all; none for models without states.

    Without prefix caching one state is kept. With it, `align` keeps the last few; until 0.31 kernels that could keep a
    state for every block did so (`all`).
    """
    asked = args.mamba_cache_mode
    if asked == "all" and rules.mamba_all == "refused":
        raise Unsupported("vLLM: mamba_cache_mode: Input should be 'align' or 'none'")
    states = [a for _, a in spec.mixers() if a.family == "recurrent"]
    if not states or not prefix_caching(spec, args, rules):
        return "none"
    if not rules.mamba_align:
        raise Unsupported(f"vLLM {rules.version}: prefix caching of recurrent states is not modelled before 0.15")
    if rules.mamba_all != "kept" or asked == "align":
        return "align"
    return "all" if all(a.layer_type in {"mamba1", "mamba2"} for a in states) else "align"
