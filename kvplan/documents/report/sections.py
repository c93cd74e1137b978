"""What a report says of one model: memory, capacity, speed, checklist, sensitivity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kvplan.documents import _columns, check, plan_tables
from kvplan.documents.fit import flags
from kvplan.documents.report.study import Study
from kvplan.plan import Plan
from kvplan.roofline import peak_flops
from kvplan.sensitivity import Notch
from kvplan.table import Column, Figure, Section, Table
from kvplan.units import format_bytes, format_rate

_SESSIONS_STEP = 4
"""Each row of the table of lengths has this many times the sessions of the one before."""


def of_model(study: Study, figures: Mapping[str, Figure]) -> Iterator[Section]:
    """Its sections in the order of the questions; `figures` by what they show, where they are this model's alone."""

    def shown(name: str) -> list[Figure]:
        return [figures[name]] if name in figures else []

    p = study.plan
    yield Section("Memory of one GPU", [_memory_text(study)], _memory_tables(study), shown("memory"))
    yield Section("Capacity", [], _capacity_tables(study), shown("sessions"))
    yield from flags(p)
    yield Section("Decode speed", [_speed_text(study)], _speed_tables(study), shown("roofline"))
    yield Section("Serving checklist", [], [check.table(study.items)])
    yield Section("What one notch changes", [], [_notches(p, study.notches)])


def titled(sections: Iterator[Section], name: str) -> Iterator[Section]:
    """The same sections under the model's name, for a report of several; a table's title follows its section's."""
    for section in sections:
        title = f"{name}: {section.title[0].lower()}{section.title[1:]}"
        tables = [replace(t, title=title) if t.title == section.title else t for t in section.tables]
        yield replace(section, title=title, tables=tables)


def _memory_text(study: Study) -> str:
    p, b = study.plan, study.plan.budget
    if b.given_pool_bytes is not None:
        return f"The pool of {format_bytes(b.given_pool_bytes)} on each GPU was given, so no budget is made."
    total, requested = format_bytes(b.gpu_total_bytes), format_bytes(b.requested_bytes)
    asked = f"Of the {total} that the driver reports, {requested} are requested"
    if p.fits:
        low, high = map(format_bytes, b.kv_pool_range)
        return f"{asked}; {format_bytes(b.kv_pool_bytes)} of them remain for the cache, {low} to {high}."
    needed = format_bytes(p.layout.needed_bytes(p.deployment.max_model_len))
    return (
        f"{asked}. One session of {plan_tables.length(p)} needs {needed} beside the other lines: "
        f"{format_bytes(p.shortfall_bytes)} are missing.{plan_tables.without_remedy(p, study.remedies)}"
    )


def _memory_tables(study: Study) -> list[Table]:
    return [*plan_tables.budget(study.plan), *plan_tables.remedies(study.remedies)]


def _capacity_tables(study: Study) -> list[Table]:
    tables = [
        plan_tables.capacity(study.plan),
        plan_tables.at_contexts(study.at_contexts, "Sessions at each maximum length"),
    ]
    if study.plan.fits:
        tables.append(_longest(study.plan))
    return [*tables, plan_tables.waste(study.plan)]


def _longest(p: Plan) -> Table:
    """How long sessions can be if so many share the pool evenly."""
    rows: list[tuple[int, int]] = []
    sessions = 1
    while sessions <= p.layout.max_num_seqs and (tokens := p.layout.max_context(p.budget.kv_pool_bytes, sessions)):
        rows.append((sessions, tokens))
        sessions *= _SESSIONS_STEP
    columns = (Column("sessions", "Sessions", "count"), Column("max_context_tokens", "Longest context", "count"))
    return Table("Longest context by sessions", columns, rows, f"So many share the pool{_of_replica(p)} evenly.")


def _of_replica(p: Plan) -> str:
    return " of each replica" if p.deployment.parallel.dp > 1 else ""


def _speed_text(study: Study) -> str:
    p, gpu = study.plan, study.plan.deployment.gpu
    if not p.max_batch:
        return "No session fits, so no speed is stated."
    if not p.step:
        return f"The catalogue has no bandwidth or no arithmetic rate of {gpu.name}, so no speed is stated."
    intensity, ridge = p.step.flops / p.step.read_bytes, peak_flops(gpu) / (gpu.bytes_per_s or 0.0)
    return (
        f"A step of {p.batch:,} sessions of {plan_tables.length(p)} is bound by {p.step.bound}. On each GPU it does "
        f"{intensity:,.1f} FLOP for each byte read; arithmetic would bind from {ridge:,.0f} on "
        f"({format_rate(peak_flops(gpu), 'FLOP/s')} over {format_rate(gpu.bytes_per_s or 0.0, 'B/s')})."
    )


def _speed_tables(study: Study) -> list[Table]:
    """Seconds of a step by batch, with their range, and what binds."""
    if not study.steps:
        return []
    columns = (
        Column("batch", "Batch", "count"),
        Column("step_s", "Step", "s"),
        Column("step_low_s", "Low", "s"),
        Column("step_high_s", "High", "s"),
        Column("tokens_per_s", "All sessions", "tokens_per_s"),
        Column("session_tokens_per_s", "Each session", "tokens_per_s"),
        Column("read_bytes", "Read on each GPU", "bytes"),
        Column("bound", "Bound by"),
    )
    rows = [
        (batch, s.seconds, s.low_seconds, s.high_seconds, batch / s.seconds, 1 / s.seconds, s.read_bytes, s.bound)
        for batch, s in study.steps
    ]
    caption = "Every session at its full length. Low and high: kernels at their best and at their worst (see Rules)."
    return [Table("One decode step by batch", columns, rows, caption)]


def _notches(p: Plan, moved: Sequence[Notch]) -> Table:
    columns = (
        Column("change", "Change"),
        Column("gpus", "GPUs", "count"),
        Column("sessions", "Sessions", "count"),
        Column("sessions_ratio", "To planned", "ratio"),
        Column("kv_tokens", "KV tokens", "count"),
        Column("step_s", "Step", "s"),
        Column("tokens_per_s", "Decode", "tokens_per_s"),
    )
    rows = [_notch_row("as planned", p, p), *(_notch_row(n.change, n.plan, p) for n in moved)]
    refused = " ".join(f"{n.change} is refused: {n.refusal.rstrip('.')}." for n in moved if not n.plan)
    caption = f"Sessions, tokens and speed of all replicas together. {refused}".strip()
    return replace(_columns.table("What one notch changes", columns, rows), caption=caption)


def _notch_row(change: str, q: Plan | None, p: Plan) -> tuple[object, ...]:
    if q is None:
        return (change, *(None,) * 6)
    parallel = q.deployment.parallel
    return (
        change, parallel.gpus, q.batch, q.batch / p.batch if p.batch else None, q.capacity.kv_tokens * parallel.dp,
        q.step.seconds if q.step else None, q.tokens_per_s,
    )  # fmt: skip
