"""The answer of `kvplan check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvplan import __version__
from kvplan.checks import Item
from kvplan.documents.fit import scenario_payload
from kvplan.plan import Plan
from kvplan.table import Column, Document, Table


def answer(p: Plan, items: Sequence[Item]) -> Document:
    """Each item with its verdict, reason and change."""
    failed, warned = (sum(item.verdict == v for item in items) for v in ("fail", "warn"))
    return Document(
        command="check",
        lead=f"{p.deployment.spec.name} on {p.deployment.parallel.gpus} x {p.deployment.gpu.name}, {p.engine.name}: "
        f"{len(items) - failed - warned} pass, {warned} warn, {failed} fail.",
        tables=[table(items)],
        payload={
            "command": "check",
            "version": __version__,
            "scenario": scenario_payload(p),
            "items": [asdict(item) for item in items],
            "ok": failed == 0,
        },
    )


def table(items: Sequence[Item]) -> Table:
    """The checklist as a table, which the report shows too."""
    return Table(
        title="Serving checklist",
        columns=(
            Column("verdict", "verdict", "verdict"),
            Column("title", "item"),
            Column("reason", "reason"),
            Column("change", "change"),
        ),
        rows=[(item.verdict, item.title, item.reason, item.change or None) for item in items],
        index_columns=2,
    )
