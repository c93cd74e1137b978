"""The answer of `kvplan sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvplan import __version__
from kvplan.documents._columns import table
from kvplan.documents.fit import payload
from kvplan.documents.plan_tables import spread
from kvplan.errors import BadInput
from kvplan.plan import Plan
from kvplan.sweep import Result
from kvplan.table import Column, Document, Table

if TYPE_CHECKING:
    from kvplan.formats.plot import LineChart


def result_payload(result: Result) -> dict[str, Any]:
    """One element of `results`: the plan, or its error."""
    return {"id": result.id, **payload(result.plan)} if result.plan else {"id": result.id, "error": result.error}


def answer(results: Sequence[Result]) -> Document:
    """One line per scenario; reasons of refusals, and bytes that are missing, where there are any."""
    return Document(
        command="sweep",
        lead=_lead(results),
        tables=[_table(results)],
        payload={"command": "sweep", "version": __version__, "results": [result_payload(r) for r in results]},
    )


def chart(results: Sequence[Result]) -> LineChart:
    """Sessions against context: a line for all scenarios that differ in nothing else. BadInput where none fits."""
    from kvplan.charts import sessions

    plans = [r.plan for r in results if r.plan and r.plan.batch]
    if not plans:
        raise BadInput("--plot: no scenario of this sweep fits, so there are no sessions to draw")
    traits = {name: [read(p) for p in plans] for name, read in _TRAITS.items()}
    told_apart = [texts for texts in traits.values() if len(set(texts)) > 1] or [traits["model"]]
    series: dict[str, list[Plan]] = {}
    for p, *words in zip(plans, *told_apart, strict=True):
        series.setdefault(", ".join(words), []).append(p)
    return sessions({name: sorted(line, key=lambda p: p.deployment.max_model_len) for name, line in series.items()})


_TRAITS: Mapping[str, Any] = {
    "model": lambda p: p.deployment.spec.name,
    "gpu": lambda p: f"{p.deployment.parallel.gpus} x {p.deployment.gpu.name}",
    "spread": lambda p: spread(p.deployment.parallel),
    "engine": lambda p: p.scenario.engine,
    "kv_dtype": lambda p: p.layout.kv_dtype,
    "kv_pool": lambda p: f"pool {p.scenario.kv_pool_bytes}",
    "utilization": lambda p: f"fraction {p.scenario.gpu_memory_utilization}",
    "max_num_seqs": lambda p: f"max_num_seqs {p.scenario.max_num_seqs}",
    "max_num_batched_tokens": lambda p: f"max_num_batched_tokens {p.scenario.max_num_batched_tokens}",
    "block_size": lambda p: f"blocks of {p.scenario.block_size}",
    "engine_args": lambda p: str(dict(p.scenario.engine_args)),
}
"""What can tell two scenarios of one context apart, in words for a legend."""


def _lead(results: Sequence[Result]) -> str:
    fit = sum(r.plan is not None and r.plan.fits for r in results)
    refused = sum(r.plan is None for r in results)
    counts = {"fit": fit, "too large": len(results) - fit - refused, "refused": refused}
    return f"{len(results):,} scenarios: {', '.join(f'{n:,} {what}' for what, n in counts.items() if n)}."


def _table(results: Sequence[Result]) -> Table:
    columns = (
        Column("id", "Id"),
        Column("model", "Model"),
        Column("context", "Context", "tokens"),
        Column("gpus", "GPUs"),
        Column("engine", "Engine"),
        Column("spread", "Spread"),
        Column("kv_dtype", "KV dtype"),
        Column("kv_pool_bytes", "KV pool", "bytes"),
        Column("kv_tokens", "KV tokens", "count"),
        Column("batch", "Sessions", "count"),
        Column("tokens_per_s", "Decode", "tokens_per_s"),
        Column("shortfall_bytes", "Short by", "bytes"),
        Column("error", "Refused because"),
    )
    return table("Scenarios", columns, [_row(r) for r in results], index_columns=3)


def _row(result: Result) -> tuple[Any, ...]:
    p = result.plan
    if p is None:
        return (result.id, *(None,) * 11, result.error)
    d = p.deployment
    return (
        result.id, d.spec.name, d.max_model_len, f"{d.parallel.gpus} x {d.gpu.name}", p.engine.name, spread(d.parallel),
        p.layout.kv_dtype, p.budget.kv_pool_bytes, p.capacity.kv_tokens, p.batch, p.tokens_per_s,
        p.shortfall_bytes or None, None,
    )  # fmt: skip
