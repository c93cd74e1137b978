"""The answer of `kvplan reconcile`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvplan import __version__
from kvplan.causes import UNEXPLAINED
from kvplan.table import Column, Document, Quantity, Table, Unit

if TYPE_CHECKING:
    from kvplan.reconcile import Comparison, Reconciliation

MEMORY: Mapping[str, str] = {
    "gpu_total_bytes": "GPU memory",
    "free_bytes": "free at start",
    "free_before_load_bytes": "free before loading",
    "weights_bytes": "weights",
    "non_torch_bytes": "outside torch",
    "activation_bytes": "activation peak",
    "graph_bytes": "CUDA graphs",
    "compute_buffer_bytes": "compute buffer",
    "available_kv_bytes": "KV pool",
    "kv_pool_bytes": "KV pool",
    "ledger_kv_bytes": "KV pool, from the lines",
}
"""Figures that are estimated, or follow from the log's own memory lines."""
CAPACITY: Mapping[str, str] = {
    "block_size": "block size",
    "attention_block_size": "block size",
    "num_gpu_blocks": "blocks",
    "profiled_num_gpu_blocks": "blocks, before the override",
    "kv_tokens": "tokens",
    "kv_cells": "cells",
    "max_total_num_tokens": "tokens",
    "full_tokens": "tokens, full layers",
    "max_concurrency": "concurrency",
    "max_running_requests": "running requests, at most",
    "per_token_bytes": "bytes of a token",
    "allocated_kv_bytes": "pool, allocated",
    "pool_kv_bytes": "pool",
    "pool_full_bytes": "pool, full layers",
    "pool_swa_bytes": "pool, sliding layers",
    "pool_state_bytes": "pool, states",
    "pool_window_bytes": "pool",
    "needed_kv_bytes": "pool for one session",
    "estimated_max_model_len": "longest that fits",
}
"""Figures that follow exactly from the pool or the slots that the log prints."""
_EXACT = frozenset({"per_token_bytes"})


def answer(found: Reconciliation) -> Document:
    """Observed beside predicted, each difference with its cause.

    The payload: `command`, `version`; `source`, `engine`, `engine_version`, `stated_model` as the log has them;
    `model`, `gpu`, `tp`, `pp`, `dp`, `dcp`, `context`, `kv_dtype` as the scenario that it was taken for; `comparisons`,
    each with `quantity`, `unit` (bytes, count or ratio), `observed`, `predicted`, `low`, `high`, `agrees`, `basis`,
    `cause` ("" where it agrees), `line` of the log (0: several); `notes`; `ok`: something was compared, and no figure
    differs without a known cause.
    """
    memory = [c for c in found.comparisons if c.quantity in MEMORY]
    rest = [c for c in found.comparisons if c.quantity not in MEMORY]
    return Document(
        command="reconcile",
        lead=f"{_subject(found)}: {_score(found.comparisons)}",
        tables=[table for table in (_memory(memory), _capacity(rest)) if table.rows],
        payload=_payload(found),
        notes=found.notes,
    )


def _payload(found: Reconciliation) -> dict[str, Any]:
    observed, deployment = found.observed, found.predicted.deployment
    parallel = deployment.parallel
    return {
        "command": "reconcile",
        "version": __version__,
        "source": observed.source,
        "engine": observed.engine,
        "engine_version": observed.version,
        "stated_model": observed.model,
        "model": deployment.spec.name,
        "gpu": deployment.gpu.name,
        "tp": parallel.tp,
        "pp": parallel.pp,
        "dp": parallel.dp,
        "dcp": parallel.dcp,
        "context": deployment.max_model_len,
        "kv_dtype": found.predicted.layout.kv_dtype,
        "comparisons": [asdict(c) for c in found.comparisons],
        "notes": list(found.notes),
        "ok": found.ok,
    }


def _subject(found: Reconciliation) -> str:
    """`llama-3.1-8b on 2 ranks, vllm 0.19.0`."""
    observed, deployment = found.observed, found.predicted.deployment
    ranks = f" on {deployment.parallel.gpus} ranks" if deployment.parallel.gpus > 1 else ""
    return f"{deployment.spec.name}{ranks}, {observed.engine} {observed.version or ''}".strip()


def _score(comparisons: Sequence[Comparison]) -> str:
    if not comparisons:
        return "the log prints no figure that can be held against the prediction."
    agree = sum(c.agrees for c in comparisons)
    unknown = sum(c.cause == UNEXPLAINED for c in comparisons)
    known = len(comparisons) - agree - unknown
    differ = "differs" if known == 1 else "differ"
    counts = ((known, f"{known} {differ} for a known cause"), (unknown, f"{unknown} unexplained"))
    right = f"{agree} of {len(comparisons)} figures are as predicted"
    return ", ".join([right, *(text for number, text in counts if number)]) + "."


def _memory(comparisons: Sequence[Comparison]) -> Table:
    return Table(
        title="Memory of one GPU",
        columns=(
            Column("verdict", "Verdict", "verdict"),
            Column("figure", "Figure"),
            Column("observed", "Observed", "bytes"),
            Column("predicted", "Predicted", "bytes"),
            Column("low", "Low", "bytes"),
            Column("high", "High", "bytes"),
            Column("cause", "Cause, or what it rests on"),
        ),
        rows=[(_verdict(c), MEMORY[c.quantity], *_sizes(c), c.cause or c.basis) for c in comparisons],
        caption="Estimates from what was asked for, with their range.",
        index_columns=2,
    )


def _capacity(comparisons: Sequence[Comparison]) -> Table:
    return Table(
        title="Pool, tokens and sessions",
        columns=(
            Column("verdict", "Verdict", "verdict"),
            Column("figure", "Figure"),
            Column("observed", "Observed"),
            Column("predicted", "Predicted"),
            Column("difference", "Difference", "percent"),
            Column("cause", "Cause, or what it rests on"),
        ),
        rows=[(_verdict(c), CAPACITY[c.quantity], *_cells(c), c.cause or c.basis) for c in comparisons],
        caption="By the engine's own rule from the pool or the slots as printed, at the resolution of the print.",
        index_columns=2,
    )


def _sizes(c: Comparison) -> Iterable[int | float]:
    return map(_whole, (c.observed, c.predicted, c.low, c.high))


def _cells(c: Comparison) -> Iterable[Any]:
    unit: Unit = "exact_bytes" if c.quantity in _EXACT else c.unit
    difference = c.observed / c.predicted - 1 if c.predicted else None
    return Quantity(_whole(c.observed), unit), Quantity(_whole(c.predicted), unit), difference


def _verdict(c: Comparison) -> str:
    """Fail is what nobody can explain."""
    return "pass" if c.agrees else "fail" if c.cause == UNEXPLAINED else "warn"


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
