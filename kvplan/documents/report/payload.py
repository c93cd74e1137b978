"""The report for programs: under `plans` what `fit` has of each model, and what only a report has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvplan.documents.fit import context_payload, decode_payload, longest_payload, payload, remedy_payload
from kvplan.documents.report.study import Study
from kvplan.table import Document


def of_comparison(comparison: Document) -> dict[str, Any]:
    """What `compare --format json` has, its heading left out."""
    return {key: value for key, value in comparison.payload.items() if key in {"rows", "alternatives"}}


def of_study(s: Study) -> dict[str, Any]:
    """What `fit --format json` has of this plan, and what only a report has."""
    return {
        **payload(s.plan),
        "remedies": [remedy_payload(r) for r in s.remedies],
        "smallest_gpus": s.smallest_gpus,
        "contexts": [context_payload(p) for p in s.at_contexts],
        "longest_sessions": longest_payload(s.plan),
        "decode_by_batch": [decode_payload(batch, step) for batch, step in s.steps],
        "checklist": [asdict(item) for item in s.items],
        "sensitivity": [
            {"change": n.change, **payload(n.plan)} if n.plan else {"change": n.change, "error": n.refusal}
            for n in s.notches
        ],
        "sources": {"model": s.plan.deployment.spec.source, "gpu": dict(s.plan.deployment.gpu.sources)},
    }
