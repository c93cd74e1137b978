"""The answer of `kvplan recommend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan import __version__
from kvplan.documents.fit import payload
from kvplan.recommend import Candidate, Target, pareto, ranked
from kvplan.table import Column, Document, Table
from kvplan.units import format_tokens

SHOWN = 10


def answer(found: Sequence[Candidate], target: Target) -> Document:
    """The cheapest plan, its runners-up, and the Pareto front of GPUs against speed."""
    best, *others = ranked(found)
    front = pareto(found)
    d = best.plan.deployment
    lead = (
        f"{d.spec.name}, {target.concurrency:,} sessions of {format_tokens(d.max_model_len)}: "
        f"{best.gpus} x {d.gpu.name} with {_spread(best)}, KV in {best.plan.layout.kv_dtype}."
    )
    body: dict[str, Any] = {
        "command": "recommend",
        "version": __version__,
        "target": {"concurrency": target.concurrency, "min_tokens_per_s": target.min_tokens_per_s},
        "best": _plain(best),
        "candidates": [_plain(c) for c in (best, *others)],
        "pareto": [_plain(c) for c in front],
    }
    tables = [
        _table("Cheapest plans that meet the target", (best, *others)[:SHOWN]),
        _table("No other is better on GPUs and speed at once", front),
    ]
    flags = best.plan.engine.flags(d, best.plan.max_batch)
    return Document(command="recommend", lead=lead, tables=tables, payload=body, notes=[f"flags: {flags}"])


def _spread(c: Candidate) -> str:
    parallel = c.plan.deployment.parallel
    axes = {"TP": parallel.tp, "PP": parallel.pp, "DP": parallel.dp, "EP": parallel.ep}
    return " ".join(f"{name} {size}" for name, size in axes.items() if size > 1) or "one rank"


def _plain(c: Candidate) -> dict[str, Any]:
    return {"gpus": c.gpus, "cost_per_hour": c.cost_per_hour, **payload(c.plan)}


def _table(title: str, found: Sequence[Candidate]) -> Table:
    columns = (
        Column("gpus", "GPUs"),
        Column("spread", "Spread"),
        Column("kv_dtype", "KV dtype"),
        Column("max_batch", "Sessions", "count"),
        Column("kv_pool_bytes", "KV pool", "bytes"),
        Column("tokens_per_s", "Decode", "tokens_per_s"),
        Column("session_tokens_per_s", "Each session", "tokens_per_s"),
        Column("cost_per_hour", "Per hour", "ratio"),
    )
    rows = [
        (
            f"{c.gpus} x {c.plan.deployment.gpu.name}", _spread(c), c.plan.layout.kv_dtype, c.plan.batch,
            c.plan.budget.kv_pool_bytes, c.tokens_per_s, c.session_tokens_per_s, c.cost_per_hour,
        )
        for c in found
    ]  # fmt: skip
    priced = any(c.cost_per_hour is not None for c in found)
    return Table(
        title, columns if priced else columns[:-1], rows if priced else [r[:-1] for r in rows], index_columns=3
    )
