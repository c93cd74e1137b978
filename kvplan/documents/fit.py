"""The answer of `kvplan fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvplan import __version__
from kvplan.budget import Budget, Line
from kvplan.documents import plan_tables
from kvplan.plan import Plan, at_context, plan
from kvplan.remedies import Remedy, remedies, smallest_gpus
from kvplan.table import Document, Section

if TYPE_CHECKING:
    from kvplan.roofline import Step


def scenario_payload(p: Plan) -> dict[str, Any]:
    """Every input, resolved."""
    d, parallel = p.deployment, p.deployment.parallel
    return {
        "model": d.spec.name,
        "gpu": d.gpu.name,
        "gpus": parallel.gpus,
        "engine": p.engine.name,
        "engine_version": d.version or p.engine.default_version,
        "tp": parallel.tp,
        "pp": parallel.pp,
        "dp": parallel.dp,
        "dcp": parallel.dcp,
        "ep": parallel.ep,
        "context": d.max_model_len,
        "kv_dtype": p.layout.kv_dtype,
        "kv_pool_bytes": p.scenario.kv_pool_bytes,
        "gpu_memory_utilization": d.memory_fraction,
        "max_num_seqs": p.layout.max_num_seqs,
        "max_num_batched_tokens": p.layout.max_num_batched_tokens,
        "block_size": p.capacity.block_size,
        "engine_args": dict(d.engine_args),
    }


def _line_payload(line: Line) -> dict[str, Any]:
    return {
        "label": line.label,
        "bytes": line.bytes,
        "low_bytes": line.low_bytes,
        "high_bytes": line.high_bytes,
        "origin": line.origin,
        "rule": line.rule,
    }


def budget_payload(budget: Budget, shortfall_bytes: int) -> dict[str, Any]:
    """The `budget` object of the JSON contract."""
    low, high = budget.kv_pool_range
    return {
        "gpu_total_bytes": budget.gpu_total_bytes,
        "requested_bytes": budget.requested_bytes,
        "lines": [_line_payload(line) for line in budget.lines],
        "beside": [_line_payload(line) for line in budget.beside],
        "kv_pool_bytes": budget.kv_pool_bytes,
        "kv_pool_low_bytes": low,
        "kv_pool_high_bytes": high,
        "shortfall_bytes": shortfall_bytes,
    }


def payload(p: Plan) -> dict[str, Any]:
    """One result, as `fit --format json` and each element of `sweep` carry it."""
    return {
        "scenario": scenario_payload(p),
        "budget": budget_payload(p.budget, p.shortfall_bytes),
        "capacity": {
            "block_size": p.capacity.block_size,
            "num_blocks": p.capacity.num_blocks,
            "kv_tokens": p.capacity.kv_tokens,
            "max_concurrency": p.capacity.max_concurrency,
            "max_batch": p.max_batch,
            "max_context_tokens": p.max_context_tokens,
            "session_bytes_reserved": p.session_bytes_reserved,
            "session_bytes_logical": p.session_bytes_logical,
        },
        "cache": {
            "bytes_per_token_per_rank": p.bytes_per_token_per_rank,
            "fixed_bytes_per_session_per_rank": p.fixed_bytes_per_session_per_rank,
            "bytes_per_block": p.layout.bytes_per_block,
        },
        "decode": decode_payload(p.batch, p.step) if p.step else None,
        "notes": list(p.notes),
        "flags": {p.engine.name: p.engine.flags(p.deployment, p.max_batch)},
    }


def context_payload(p: Plan) -> dict[str, Any]:
    """The same deployment at another maximum length."""
    return {
        "context": p.deployment.max_model_len,
        "batch": p.batch,
        "session_bytes_reserved": p.session_bytes_reserved,
        "tokens_per_s": p.tokens_per_s,
    }


def longest_payload(p: Plan) -> list[dict[str, int]]:
    """How long more sessions than run at full length can be."""
    return [{"sessions": n, "max_context_tokens": tokens} for n, tokens in plan_tables.longest_sessions(p)]


def decode_payload(batch: int, step: Step) -> dict[str, Any]:
    """One decode step of `batch` sessions over all replicas."""
    return {
        "batch": batch,
        "step_s": step.seconds,
        "step_low_s": step.low_seconds,
        "step_high_s": step.high_seconds,
        "tokens_per_s": batch / step.seconds,
        "bound": step.bound,
    }


def remedy_payload(remedy: Remedy) -> dict[str, Any]:
    """One change that makes a plan fit."""
    return {"change": remedy.change, "max_batch": remedy.max_batch}


def answer(p: Plan, contexts: Sequence[int]) -> Document:
    """Budget, capacity, other contexts, waste, and what would change them, for one plan."""
    changes = remedies(p) if not p.fits else ()
    fewest = smallest_gpus(p) if p.scenario.kv_pool_bytes is None else None
    others = [plan(at_context(p.scenario, n)) for n in contexts]
    tables = [plan_tables.capacity(p), *plan_tables.budget(p)]
    if others:
        tables.append(plan_tables.at_contexts(others, "At other maximum lengths"))
    tables += [*plan_tables.how_long(p), plan_tables.waste(p), *plan_tables.remedies(changes)]
    return Document(
        command="fit",
        lead=_lead(p, fewest, changes),
        tables=tables,
        payload={
            "command": "fit",
            "version": __version__,
            **payload(p),
            "remedies": [remedy_payload(r) for r in changes],
            "smallest_gpus": fewest,
            "contexts": [context_payload(q) for q in others],
            "longest_sessions": longest_payload(p),
        },
        notes=p.notes,
        sections=flags(p),
    )


def _lead(p: Plan, fewest: int | None, changes: Sequence[Remedy]) -> str:
    least = f" It starts on {fewest} x {p.deployment.gpu.name} or more." if fewest else ""
    question = f"{p.deployment.spec.name} on {plan_tables.setting(p)}"
    return f"{question}: {plan_tables.verdict(p)}.{least}{plan_tables.without_remedy(p, changes)}"


def flags(p: Plan) -> list[Section]:
    """What to paste; nothing for a plan that would not start."""
    return [Section(f"Flags for {p.engine.name}", code=[p.engine.flags(p.deployment, p.max_batch)])] if p.fits else []
