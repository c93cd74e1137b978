"""Whether the plan's settings use what it found: concurrency, regime, positions, replication."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.checks._item import Item, latent_layers
from kvplan.compare import crossover_tp, variant
from kvplan.errors import KvplanError
from kvplan.plan import plan
from kvplan.roofline import attention_work, operations, peak_flops
from kvplan.units import format_tokens

if TYPE_CHECKING:
    from kvplan.plan import Plan, Scenario


def concurrency(p: Plan) -> Item:
    """max_num_seqs and max_num_batched_tokens are large enough to use the pool."""
    held = _pool_batch(p)
    title = "settings that use the pool"
    if held > p.layout.max_num_seqs:
        return Item(
            "concurrency", title, "warn",
            f"the pool holds {held:,} sessions of {format_tokens(p.deployment.max_model_len)}, the scheduler admits "
            f"{p.layout.max_num_seqs:,}",
            p.engine.flags(p.deployment, held),
        )  # fmt: skip
    batched = p.layout.max_num_batched_tokens
    if batched and batched < p.max_batch:
        reason = f"{p.max_batch:,} sessions decode one token each, a step takes {batched:,}"
        return Item("concurrency", title, "warn", reason, f"--max-num-batched-tokens {2 * p.max_batch}")
    return Item(
        "concurrency", title, "pass", f"{p.max_batch:,} sessions fit; {p.engine.flags(p.deployment, p.max_batch)}"
    )


def _pool_batch(p: Plan) -> int:
    """Sessions that the pool alone would hold."""
    per_session = int(p.layout.blocks_per_session(p.deployment.max_model_len))
    return p.capacity.num_blocks // per_session if per_session else p.max_batch


def regime(p: Plan) -> Item | None:
    """Memory- or compute-bound at the planned batch, and the batch at which it turns."""
    gpu, d = p.deployment.gpu, p.deployment
    peak = peak_flops(gpu)
    if not gpu.bytes_per_s or not peak or not p.max_batch:
        return None
    ridge = peak / gpu.bytes_per_s
    intensity = _attention_intensity(p)
    attention = "arithmetic" if intensity > ridge else "memory"
    turn = _gemm_turn(p, ridge)
    gemms = "arithmetic" if turn is not None and p.batch >= turn else "memory"
    reason = (
        f"attention does {intensity:.1f} FLOP a byte against a ridge of {ridge:.0f}: bound by {attention}, whatever "
        f"the batch; weight GEMMs turn to arithmetic at batch {turn:,}" if turn is not None else
        f"attention does {intensity:.1f} FLOP a byte against a ridge of {ridge:.0f}: bound by {attention}"
    )  # fmt: skip
    whole = f"; at batch {p.batch:,} they are bound by {gemms}" if turn is not None else ""
    del d
    return Item("gemm-regime", "memory- or compute-bound", "pass", reason + whole)


def _attention_intensity(p: Plan) -> float:
    """FLOPs per cache byte of all attention layers on a rank."""
    d = p.deployment
    flops = size = 0
    for layers, attention in d.spec.mixers():
        read, done = attention_work(attention, d.max_model_len, p.layout.kv_format, d.parallel)
        size, flops = size + layers * read, flops + layers * done
    return flops / size if size else 0.0


def _gemm_turn(p: Plan, ridge: float) -> int | None:
    """The batch at which weight GEMMs reach the ridge: FLOPs grow with it, bytes of dense weights do not."""
    d = p.deployment
    ops = [op for op in operations(d.spec, p.layout.kv_format, d.parallel) if op.kind == "gemm"]
    flops = sum(op.count * op.flops for op in ops)
    size = sum(op.count * (op.weight_bytes + op.experts[2]) for op in ops)
    return int(size * ridge / flops) + 1 if flops else None


def yarn(p: Plan) -> Item | None:
    """A context beyond the trained length needs rope scaling that covers it."""
    spec, tokens = p.deployment.spec, p.deployment.max_model_len
    scaling, title = spec.rope_scaling, "positions beyond the trained length"
    if scaling is None or not scaling.original_max_position_embeddings:
        longest = spec.max_position_embeddings
        if longest and tokens > longest:
            reason = f"{tokens:,} tokens planned, {longest:,} positions in the config and no rope scaling"
            return Item(
                "yarn", title, "fail", reason, f"--context {format_tokens(longest)}, or a checkpoint with scaling"
            )
        return None
    trained = scaling.original_max_position_embeddings
    reach = int(trained * scaling.factor)
    facts = f"{scaling.rope_type}: factor {scaling.factor:g} x {trained:,} trained = {reach:,} tokens"
    if tokens > reach:
        return Item("yarn", title, "fail", f"{facts}; {tokens:,} planned", f"--context {format_tokens(reach)}")
    found = latent_layers(p)
    scaled = f"; only the {found[1].qk_rope_head_dim} rotary elements are scaled" if found else ""
    missing = scaling.rope_type == "yarn" and found and not (scaling.mscale or scaling.mscale_all_dim)
    if missing:
        return Item(
            "yarn", title, "warn", facts + scaled + "; no mscale: attention is not rescaled", "check the config"
        )
    mscale = f", mscale {scaling.mscale:g}" if scaling.mscale else ""
    return Item("yarn", title, "pass", facts + mscale + scaled)


def tp_replication(p: Plan) -> Item | None:
    """Tensor parallelism copies the latent: where DP attention or DCP holds more, and where GQA is smaller."""
    found, d = latent_layers(p), p.deployment
    if not found or d.parallel.tp == 1:
        return None
    title, tp = "copies under tensor parallelism", d.parallel.tp
    if d.parallel.dcp > 1:
        return Item("tp-replication", title, "pass", f"the sequence is divided over {d.parallel.dcp} of {tp} ranks")
    better = [(name, q) for name, q in _others(p) if q > p.batch]
    smaller = crossover_tp(variant(d.spec, "gqa:8"), d.spec, p.layout.kv_format) if _has_gqa8(p) else None
    gqa = f"; GQA with 8 heads would be smaller from TP {smaller} on" if smaller and tp >= smaller else ""
    reason = f"each of {tp} ranks holds the whole latent: {p.batch:,} sessions{gqa}"
    if not better:
        return Item("tp-replication", title, "pass", reason)
    options = "; ".join(f"{name}: {q:,} sessions" for name, q in better)
    return Item("tp-replication", title, "warn", f"{reason}; the same GPUs hold more otherwise", options)


def _has_gqa8(p: Plan) -> bool:
    found = latent_layers(p)
    families = {a.family for _, a in p.deployment.spec.mixers()}
    return bool(found) and families <= {"mla", "none"} and found[1].num_attention_heads % 8 == 0 if found else False


def _others(p: Plan) -> list[tuple[str, int]]:
    """The same GPUs with data-parallel attention and with decode context parallelism."""
    s, parallel = p.scenario, p.deployment.parallel
    candidates: list[tuple[str, Scenario]] = [
        (f"--dp {parallel.tp * parallel.dp} --tp 1", replace(s, tp=1, dp=parallel.tp * parallel.dp, ep=parallel.tp)),
        (f"--dcp {parallel.tp}", replace(s, dcp=parallel.tp, tp=parallel.tp)),
    ]
    results = []
    for name, scenario in candidates:
        try:
            results.append((name, plan(scenario).batch))
        except KvplanError:
            continue  # the engine refuses it here, so it is no alternative
    return results


CHECKS = (concurrency, regime, yarn, tp_replication)
