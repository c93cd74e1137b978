"""The answer of `kvplan reconcile`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvplan import __version__
from kvplan.logs.quantities import QUANTITIES
from kvplan.table import Column, Document, Quantity, Table, Unit

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.reconcile import Comparison, Reconciliation


def answer(observed: Observed, found: Reconciliation, notes: Sequence[str]) -> Document:
    """Observed beside predicted, each difference with its cause."""
    comparisons = found.comparisons
    agreeing = sum(c.agrees for c in comparisons)
    made = found.given or found.free
    deployment = made.deployment if made else None
    subject = (
        f"{deployment.spec.name} under {observed.engine} {observed.version or ''}".strip()
        if deployment
        else observed.source
    )
    return Document(
        command="reconcile",
        lead=f"{subject}: {agreeing} of {len(comparisons)} printed figures agree with the prediction.",
        tables=[_table(comparisons)],
        payload={
            "command": "reconcile",
            "version": __version__,
            "engine": observed.engine,
            "engine_version": observed.version,
            "model": observed.model,
            "comparisons": [_plain(c) for c in comparisons],
            "ok": agreeing == len(comparisons),
        },
        notes=[*notes, *found.notes],
    )


def _plain(c: Comparison) -> dict[str, Any]:
    return asdict(c)


def _table(comparisons: Sequence[Comparison]) -> Table:
    return Table(
        title="What the engine said against the prediction",
        columns=(
            Column("quantity", "Figure"),
            Column("observed", "Observed"),
            Column("predicted", "Predicted"),
            Column("difference", "Difference", "percent"),
            Column("verdict", "Agrees", "verdict"),
            Column("cause", "Cause, or what the prediction rests on"),
        ),
        rows=[_row(c) for c in comparisons],
        caption="Blocks, tokens and concurrency are predicted from the pool as printed; memory lines from the configuration alone.",
    )


def _row(c: Comparison) -> tuple[Any, ...]:
    unit: Unit = "bytes" if c.unit == "bytes" else "count" if float(c.observed).is_integer() else "ratio"
    difference = c.observed / c.predicted - 1 if c.predicted else None
    return (
        QUANTITIES.get(c.quantity, c.quantity),
        Quantity(_whole(c.observed), unit),
        Quantity(_whole(c.predicted), unit),
        difference,
        "pass" if c.agrees else "warn",
        c.cause or c.basis,
    )


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
