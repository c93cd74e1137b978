"""The answer of `kvplan check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kvplan import __version__
from kvplan.checks import Item
from kvplan.documents.fit import scenario_payload
from kvplan.documents.plan_tables import length, setting
from kvplan.plan import Plan
from kvplan.table import Column, Document, Table


def answer(p: Plan, items: Sequence[Item]) -> Document:
    """Each item with its verdict, reason and change."""
    failed, warned = (sum(item.verdict == v for item in items) for v in ("fail", "warn"))
    return Document(
        command="check",
        lead=f"{p.deployment.spec.name} on {setting(p)}, {length(p)}: "
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
    """The checklist as a table, which the report shows too: what to change stands below its reason."""
    return Table(
        title="Serving checklist",
        columns=(
            Column("verdict", "Verdict", "verdict"),
            Column("title", "Item"),
            Column("reason", "Reason, and what to change"),
        ),
        rows=[(item.verdict, item.title, "\n→ ".join(filter(None, (item.reason, item.change)))) for item in items],
        index_columns=2,
    )
