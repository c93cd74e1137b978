"""The answer of `kvplan sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan import __version__
from kvplan.documents.fit import payload
from kvplan.sweep import Result
from kvplan.table import Column, Document, Table


def result_payload(result: Result) -> dict[str, Any]:
    """One element of `results`: the plan, or its error."""
    return {"id": result.id, **payload(result.plan)} if result.plan else {"id": result.id, "error": result.error}


def answer(results: Sequence[Result]) -> Document:
    """One line per scenario."""
    failed = [r for r in results if r.error]
    return Document(
        command="sweep",
        tables=[_table(results)],
        payload={"command": "sweep", "version": __version__, "results": [result_payload(r) for r in results]},
        notes=[f"{r.id}: {r.error}" for r in failed],
    )


def _table(results: Sequence[Result]) -> Table:
    return Table(
        title=f"{len(results):,} scenarios",
        columns=(
            Column("id", "id"),
            Column("model", "model"),
            Column("gpus", "GPUs"),
            Column("engine", "engine"),
            Column("tp", "TP", "count"),
            Column("context", "context", "tokens"),
            Column("kv_dtype", "KV dtype"),
            Column("kv_pool_bytes", "KV pool", "bytes"),
            Column("kv_tokens", "KV tokens", "count"),
            Column("max_batch", "sessions", "count"),
            Column("tokens_per_s", "decode", "tokens_per_s"),
        ),
        rows=[_row(r) for r in results],
    )


def _row(result: Result) -> tuple[Any, ...]:
    p = result.plan
    if p is None:
        return (result.id, result.error, *(None,) * 9)
    d = p.deployment
    speed = p.batch / p.step.seconds if p.step else None
    return (
        result.id, d.spec.name, f"{d.parallel.gpus} x {d.gpu.name}", p.engine.name, d.parallel.tp, d.max_model_len,
        p.layout.kv_dtype, p.budget.kv_pool_bytes, p.capacity.kv_tokens, p.max_batch, speed,
    )  # fmt: skip
