"""What users run into when they start an engine (collected from 168 public reports of capacity surprises)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.checks._item import Item
from kvplan.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from kvplan.plan import Plan


def starts(p: Plan) -> Item:
    """The maximum length fits; else the longest that would."""
    length = format_tokens(p.deployment.max_model_len)
    if p.fits:
        return Item("default-context", "the maximum length fits", "pass", f"{p.max_batch:,} sessions of {length}")
    change = f"--context {p.max_context_tokens}" if p.max_context_tokens else "more memory, or fewer bytes of weights"
    short = format_bytes(p.shortfall_bytes)
    reason = f"{short} short at {length} tokens; the longest that starts is {p.max_context_tokens:,}"
    return Item("default-context", "the maximum length fits", "fail", reason, change)


def state_blocks(p: Plan) -> Item | None:
    """Hybrids take a state block per running session: max_num_seqs must not exceed them."""
    spec = p.deployment.spec
    if p.engine.name != "vllm" or not any(a.family == "recurrent" for _, a in spec.mixers()):
        return None
    blocks, seqs = p.capacity.num_blocks, p.layout.max_num_seqs
    title = "state blocks against max_num_seqs"
    if seqs > blocks:
        return Item(
            "state-blocks", title, "fail",
            f"max_num_seqs {seqs:,} exceeds {blocks:,} blocks; the engine refuses to capture graphs for more sessions "
            "than it has state blocks",
            f"--max-num-seqs {blocks}",
        )  # fmt: skip
    return Item("state-blocks", title, "pass", f"{blocks:,} blocks for {seqs:,} sessions")


def draft(p: Plan) -> Item | None:
    """A draft's layers take their part of every block."""
    speculative = p.deployment.engine_args.get("speculative_config")
    if not speculative:
        return None
    layers = sum(len(g.indices) for g in p.deployment.spec.mtp)
    reason = f"speculation ({speculative}) adds its layers to every block"
    if layers:
        reason += f": {layers} beside {p.deployment.spec.num_hidden_layers}"
    return Item("draft", "the draft's share of the pool", "warn", reason, "compare kvplan fit with and without it")


def unified_memory(p: Plan) -> Item | None:
    """On unified memory the page cache and the CPU's use count as used."""
    gpu = p.deployment.gpu
    if gpu.memory_kind != "unified":
        return None
    share = p.budget.requested_bytes / p.budget.gpu_total_bytes
    reason = f"{gpu.name} shares {format_bytes(gpu.memory_bytes)} with the CPU; {share:.0%} of it is requested"
    if share > 0.8:
        return Item("unified-memory", "unified memory", "warn", reason, "a fraction of 0.5 to 0.8")
    return Item("unified-memory", "unified memory", "pass", reason)


def utilization(p: Plan) -> Item | None:
    """vLLM's fraction is of the total, not of what is free: a busy GPU fails at start."""
    if p.engine.name != "vllm" or p.budget.given_pool_bytes is not None:
        return None
    share = p.budget.requested_bytes / p.budget.gpu_total_bytes
    rest = p.budget.gpu_total_bytes - p.budget.requested_bytes
    beside = sum(line.bytes for line in p.budget.beside)
    reason = f"{share:.2f} of the total is taken whatever else runs there; {format_bytes(rest)} stay outside it"
    title = "utilization of total against free"
    if rest < beside + 2**29:
        needs = f", CUDA graphs and contexts need about {format_bytes(beside + 2**29)} of that"
        return Item("utilization", title, "warn", reason + needs, "lower --gpu-memory-utilization by 0.02")
    return Item("utilization", title, "pass", reason)


CHECKS = (starts, state_blocks, draft, unified_memory, utilization)
