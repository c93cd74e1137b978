"""The figures of a report by what they show; none where matplotlib is not installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan import charts
from kvplan.documents import compare
from kvplan.documents.report.study import Study
from kvplan.formats.plot import Chart, figure
from kvplan.roofline import Step
from kvplan.table import Figure

MISSING = "Plots are left out: they need matplotlib (`pip install 'kvplan[plot]'`). The tables hold all figures."


def of_models(question: compare.Question) -> dict[str, Figure]:
    """Cache against context."""
    return _drawn({"cache": compare.chart(question)})


def of_plans(question: compare.Question, studies: Sequence[Study]) -> dict[str, Figure]:
    """Cache and sessions against context, memory, and decode steps on the roofline; all models in each."""
    found: dict[str, Chart | None] = {"cache": compare.chart(question)}
    found["memory"] = charts.memory([s.plan for s in studies])
    if any(p.batch for s in studies for p in s.at_contexts):
        found["sessions"] = charts.sessions({s.name: s.at_contexts for s in studies})
    found["roofline"] = charts.roofline(studies[0].plan.deployment.gpu, _points(studies))
    return _drawn(found)


def _points(studies: Sequence[Study]) -> list[tuple[str, Step, int]]:
    """Each model at batch 1 and at its largest."""
    return [
        (f"{s.name}, batch {batch:,}", step, s.plan.deployment.parallel.pp)
        for s in studies
        for batch, step in dict(s.steps[:1] + s.steps[-1:]).items()
    ]


def _drawn(found: Mapping[str, Chart | None]) -> dict[str, Figure]:
    drawn = ((name, figure(chart)) for name, chart in found.items() if chart)
    return {name: picture for name, picture in drawn if picture}
