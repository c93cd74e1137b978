"""Why blocks, tokens, concurrency and bytes of slots differ though the pool is the log's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.causes.case import CAPACITY, SLOTS
from kvplan.units import format_bytes

if TYPE_CHECKING:
    from kvplan.causes.case import Case

RELEASES = ("0.7", "0.8", "0.10", "0.13", "0.16", "0.19", "0.21", "0.25", "0.28", "0.30", "0.33")
"""vLLM releases between which a rule of blocks, tokens or concurrency changed."""
_STAGE = re.compile(r"PP(\d+)")
_RANKS = (2, 4, 8, 16)
_LEAST_SHARE = 0.5
"""A rank that holds less than half of another's pool is no rank of the same start."""


def overridden(case: Case) -> str | None:
    """num_gpu_blocks_override replaces what the memory allows."""
    stated = case.observed.flags.get("num_gpu_blocks_override")
    blocks, profiled = case.observed.least("num_gpu_blocks"), case.observed.first("profiled_num_gpu_blocks")
    replaced = stated if type(stated) is int else int(blocks.number) if blocks and profiled else None
    if replaced is None or case.quantity not in CAPACITY - {"profiled_num_gpu_blocks"}:
        return None
    args = {**case.scenario.engine_args, "num_gpu_blocks_override": replaced}
    if not case.agrees_under(engine_args=args):
        return None
    return f"num_gpu_blocks_override={replaced} replaces the blocks that the memory allows"


def other_stage(case: Case) -> str | None:
    """The token line is the least over stages; a GiB line is one stage's."""
    pp = case.predicted.deployment.parallel.pp
    printed = {m[1] for r in case.observed.each("available_kv_bytes") if (m := _STAGE.search(r.rank))}
    if pp < 2 or case.quantity not in CAPACITY or not 0 < len(printed) < pp or case.gap >= 0:
        return None
    return f"{len(printed)} of {pp} stages printed a pool; tokens are the least over all stages, and another one binds"


def all_stages(case: Case) -> str | None:
    """Start-up compares the pool of one stage with what the layers of all stages need (vLLM issue 34076)."""
    if case.predicted.deployment.parallel.pp < 2 or case.quantity not in {"needed_kv_bytes", "estimated_max_model_len"}:
        return None
    return "start-up counts the layers of all stages against the pool of one" if case.agrees_under(pp=1) else None


def other_rank(case: Case) -> str | None:
    """The token line is the least over ranks; a GiB line is one rank's."""
    pools, parallel = case.observed.each("available_kv_bytes"), case.predicted.deployment.parallel
    if case.quantity not in {"num_gpu_blocks", "kv_tokens", "max_concurrency"} or not _LEAST_SHARE <= case.ratio < 1:
        return None
    if not 0 < len(pools) < parallel.gpus or not _fewer_alike(case):
        return None
    least = min(pool.number for pool in pools) * case.ratio
    said = f"{len(pools)} of {parallel.gpus} ranks printed a pool"
    return f"{said}; tokens are the least over ranks: one has {format_bytes(least)}"


def _fewer_alike(case: Case) -> bool:
    """Whether blocks, tokens and concurrency are all short by the same share."""
    figures = [c for c in case.under().values() if c.quantity in {"num_gpu_blocks", "kv_tokens", "max_concurrency"}]
    ratios = [c.observed / c.predicted for c in figures if c.predicted]
    return bool(ratios) and max(ratios) - min(ratios) < 0.01


def other_release(case: Case) -> str | None:
    """Another release of vLLM prints this figure from the same pool: hybrids before 0.20 print blocks over groups."""
    sized = case.observed.first("available_kv_bytes") or case.observed.first("num_gpu_blocks")
    if case.observed.engine != "vllm" or case.quantity not in CAPACITY or sized is None:
        return None
    alike = [release for release in RELEASES if case.all_agree_under(engine=f"vllm@{release}")]
    if not alike:
        return None
    taken = case.scenario.engine.partition("@")[2] or "the newest release"
    said = f"the log states {case.observed.version}" if case.observed.version else f"{taken} was assumed"
    return f"vLLM {' and '.join(dict.fromkeys((alike[0], alike[-1])))} print it so; {said}"


def other_dtype(case: Case) -> str | None:
    """A checkpoint may ask for a KV dtype that no flag shows."""
    if case.has_flag("type_k") or case.quantity not in CAPACITY | SLOTS or case.scenario.kv_dtype != "auto":
        return None
    found = next((d for d in ("fp8", "bf16", "nvfp4") if case.all_agree_under(kv_dtype=d)), None)
    return f"the cache is {found}, though no flag says so: checkpoints can ask for it" if found else None


def unsaid_ranks(case: Case) -> str | None:
    """A log without flags does not say over how many ranks heads and weights are divided."""
    if case.has_flag("tensor_parallel_size", "tp_size") or case.predicted.deployment.parallel.tp > 1:
        return None
    if case.quantity not in CAPACITY | SLOTS | {"weights_bytes"}:
        return None
    found = [str(tp) for tp in _RANKS if case.all_agree_under(tp=tp)]
    return f"the log does not state tensor parallelism; --tp {' or '.join(found)} explains it" if found else None


def unsaid_context(case: Case) -> str | None:
    """Metrics state tokens and concurrency, not the length that they are computed with."""
    tokens, sessions = case.observed.least("kv_tokens"), case.observed.least("max_concurrency")
    if case.scenario.context or case.quantity not in CAPACITY or not (tokens and sessions and sessions.number > 0):
        return None
    exact = round(tokens.number / sessions.number)
    usual = round(exact / 1024) * 1024 or exact
    found = next((length for length in (usual, exact) if case.all_agree_under(context=length)), None)
    return f"the maximum length is not stated; --context {found} explains it" if found else None


def otherwise(case: Case) -> str | None:
    """What the log does not state, all readings that the figures allow."""
    found = [text for rule in (other_release, other_dtype, unsaid_ranks, unsaid_context) if (text := rule(case))]
    return "; or ".join(found) or None


def padding(case: Case) -> str | None:
    """Layers that vLLM adds to even out its groups, where the prediction has none."""
    added, layers = case.observed.first("padding_layers"), case.scenario.model.num_hidden_layers
    if not added or case.quantity not in CAPACITY:
        return None
    if abs(case.ratio * (1 + added.number / layers) - 1) > 0.005:
        return None
    return f"the engine added {added.value} padding layers to even out its groups"


def expanded(case: Case) -> str | None:
    """A GGUF file without MLA's own key lengths caches K and V of every head."""
    if case.observed.engine != "llama.cpp" or case.quantity != "allocated_kv_bytes":
        return None
    size = _expanded_bytes(case)
    if not size or abs(case.comparison.observed / size - 1) > 0.001:
        return None
    return "the file predates MLA in llama.cpp: K and V of every head are cached instead of the latent"


def _expanded_bytes(case: Case) -> float:
    """The predicted pool with every latent layer's K and V heads in full."""
    latent = full = 0
    for layers, a in case.scenario.model.mixers():
        if not isinstance(a, MultiHeadLatentAttention):
            return 0
        latent += layers * (a.kv_lora_rank + a.qk_rope_head_dim)
        full += layers * a.num_attention_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim)
    return case.comparison.predicted * full / latent


def draft(case: Case) -> str | None:
    """A drafter's layers take part of every block."""
    stated = speculation(case)
    if stated is None or case.quantity not in CAPACITY or not 0.3 < case.ratio < 0.995:
        return None
    return f"{stated} drafts: its layers, which the log does not state, take {1 - case.ratio:.0%} of the pool"


def speculation(case: Case) -> Any:
    """The speculative method that the log states."""
    flags = case.observed.flags
    config = flags.get("speculative_config")
    method = config.get("method") if isinstance(config, dict) else config
    return method or flags.get("speculative_algorithm")
