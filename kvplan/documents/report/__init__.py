"""The answer of `kvplan report`: a plan that people share, complete in one document.

question, answer    a paragraph, and a table with a column per model
cache               what `kvplan compare` says of one session
side by side        the plots of several models
each model          memory, capacity, flags, speed, checklist, sensitivity
sources, command    where figures are from, and how to find them again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvplan import __version__
from kvplan.documents import compare, plan_tables
from kvplan.documents.compare import Question
from kvplan.documents.report import figures
from kvplan.documents.report.payload import of_comparison, of_study
from kvplan.documents.report.sections import of_model, titled
from kvplan.documents.report.sources import reproduction, sources
from kvplan.documents.report.study import Study, study
from kvplan.table import Column, Document, Quantity, Section, Table

__all__ = ["Colophon", "Question", "Study", "of_models", "of_plans", "study"]

COMPARED_TOKENS = (4096, 32768, 131072)
COMPARED_TPS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Colophon:
    """How a report came about: the command, and the moment where it was asked for."""

    command: str
    written_at: str | None = None


def of_models(question: Question, colophon: Colophon) -> Document:
    """A report without GPUs: what the cache of each model costs."""
    names = _listed([s.name for s in question.specs])
    comparison = compare.answer(question)
    drawn = figures.of_models(question)
    return _document(
        title=f"KV cache of {names}",
        lead=f"What does the KV cache of one session cost with {names}? {comparison.lead}",
        sections=[
            Section("Cache of one session", [], comparison.tables, [*drawn.values()]),
            sources(question.specs, ()),
        ],
        payload={"compare": of_comparison(comparison), "plans": []},
        notes=[*comparison.notes, *([] if drawn else [figures.MISSING])],
        colophon=colophon,
    )


def of_plans(studies: Sequence[Study], colophon: Colophon) -> Document:
    """A report of one or several models, each alone on the same GPUs."""
    question = _question(studies)
    comparison, drawn = compare.answer(question), figures.of_plans(question, studies)
    shared = {"cache": drawn.pop("cache")} if "cache" in drawn else {}
    several = len(studies) > 1
    body: list[Section] = [Section("Cache of one session", [comparison.lead], comparison.tables, [*shared.values()])]
    if several and drawn:
        body.append(Section("Side by side", ["Each model alone on the same GPUs."], figures=[*drawn.values()]))
    for found in studies:
        body += titled(of_model(found, {}), found.name) if several else of_model(found, drawn)
    names = _listed([s.name for s in studies])
    p = studies[0].plan
    return _document(
        title=f"Plan: {names} on {p.deployment.parallel.gpus} x {p.deployment.gpu.name}",
        lead=f"How many sessions run at once, how long can they be, and how fast do they decode, with {names} on "
        f"{plan_tables.setting(p)}? {_answer(studies)}",
        tables=[_answer_table(studies)],
        sections=[*body, sources(question.specs, studies)],
        payload={"compare": of_comparison(comparison), "plans": [of_study(s) for s in studies]},
        notes=[*_notes(studies), *comparison.notes, *([] if shared else [figures.MISSING])],
        colophon=colophon,
    )


def _document(
    *,
    title: str,
    lead: str,
    sections: Sequence[Section],
    payload: dict[str, Any],
    notes: Sequence[str],
    colophon: Colophon,
    tables: Sequence[Table] = (),
) -> Document:
    written = {"written_at": colophon.written_at} if colophon.written_at else {}
    return Document(
        command="report",
        title=title,
        lead=lead,
        tables=tables,
        sections=[*sections, reproduction(colophon.command)],
        payload={"command": "report", "version": __version__, "reproduce": colophon.command, **written, **payload},
        notes=[*notes, *(f"Written at {moment}." for moment in written.values())],
    )


def _question(studies: Sequence[Study]) -> Question:
    """Models side by side as their engine stores them, at lengths that all plans reach."""
    shortest = min(s.plan.deployment.max_model_len for s in studies)
    tp = studies[0].plan.deployment.parallel.tp
    return Question(
        specs=tuple(s.plan.deployment.spec for s in studies),
        contexts=tuple(sorted({n for n in COMPARED_TOKENS if n < shortest} | {shortest})),
        tps=tuple(sorted({*COMPARED_TPS, tp})),
        stored={s.name: s.plan.layout.kv_format for s in studies},
        at_tp=tp,
    )


def _answer(studies: Sequence[Study]) -> str:
    """One sentence for each model."""
    return " ".join(f"{s.name}: {plan_tables.verdict(s.plan)}." for s in studies)


def _answer_table(studies: Sequence[Study]) -> Table:
    columns = (Column("figure", "Figure"), *(Column(s.name, s.name) for s in studies))
    fit = all(s.plan.fits for s in studies)
    by_model = [list(_figures(s, fit)) for s in studies]
    rows = [(figure[0][0], *(cell for _, cell in figure)) for figure in zip(*by_model, strict=True)]
    return Table("The answer", columns, [row for row in rows if any(_is_known(cell) for cell in row[1:])])


def _is_known(cell: Any) -> bool:
    return (cell.value if isinstance(cell, Quantity) else cell) is not None


def _figures(s: Study, all_fit: bool) -> Iterator[tuple[str, Any]]:
    """What one model comes to, in the order in which people ask."""
    p, step = s.plan, s.plan.step
    yield "Starts", "yes" if p.fits else "no"
    if not all_fit:
        yield "Missing on each GPU", Quantity(p.shortfall_bytes, "bytes")
    yield "Maximum length", Quantity(p.deployment.max_model_len, "tokens")
    yield "KV dtype", p.layout.kv_dtype
    yield "KV pool on each GPU", Quantity(p.budget.kv_pool_bytes, "bytes")
    yield "KV tokens, all replicas", Quantity(p.capacity.kv_tokens * p.deployment.parallel.dp, "count")
    yield "Reserved by a session", Quantity(p.session_bytes_reserved, "bytes")
    yield "Sessions at once", Quantity(p.batch, "count")
    yield "Limited by", plan_tables.limit(p)
    yield "Longest session", Quantity(p.max_context_tokens, "tokens")
    yield "Decode step", Quantity(step.seconds if step else None, "s")
    yield "Decode, all sessions", Quantity(p.tokens_per_s, "tokens_per_s")
    yield "Decode, each session", Quantity(1 / step.seconds if step else None, "tokens_per_s")
    yield "Bound by", step.bound if step else None
    yield "Fewest such GPUs", Quantity(s.smallest_gpus, "count")


def _notes(studies: Sequence[Study]) -> Iterator[str]:
    """What all plans say once; what one of several says, with its model's name."""
    for note in dict.fromkeys(note for s in studies for note in s.plan.notes):
        names = [s.name for s in studies if note in s.plan.notes]
        yield note if len(names) == len(studies) else f"{_listed(names)}: {note}"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
