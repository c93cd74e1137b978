"""Why a printed figure differs from a predicted one: the known causes, tried in turn, else "unexplained".

A cause is named only where the numbers support it. Most rules ask what kvplan predicts under another scenario (another
release, KV dtype, quantization, number of ranks, the lines as printed) and hold where that is what was printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.causes import capacity, memory
from kvplan.causes.case import Case, Rule, Under

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.reconcile.comparison import Comparison
    from kvplan.reconcile.predict import Prediction

__all__ = ["RULES", "UNEXPLAINED", "Case", "Under", "explain"]

UNEXPLAINED = "unexplained"
RULES: tuple[Rule, ...] = (
    capacity.overridden, capacity.all_stages, capacity.other_stage, capacity.otherwise, capacity.expanded,
    capacity.padding, capacity.draft, capacity.other_rank,
    memory.quantized, memory.draft_weights, memory.graph_estimate, memory.lines_above, memory.leftover,
    memory.unified, memory.unsaid_fraction, memory.encoder,
)  # fmt: skip
"""The most specific first."""


def explain(
    found: Iterable[Comparison], observed: Observed, predicted: Prediction, under: Under
) -> Iterator[Comparison]:
    """The comparisons, those that differ with their cause."""
    for comparison in found:
        if comparison.agrees:
            yield comparison
            continue
        case = Case(observed, predicted, comparison, under)
        cause = next((text for rule in RULES if (text := rule(case))), UNEXPLAINED)
        yield replace(comparison, cause=cause)
