"""What an engine said against what kvplan predicts, figure by figure, with the cause of each difference.

Memory lines are predicted from what was asked for alone: they are estimates with ranges. Blocks, tokens and
concurrency are predicted from the pool that the log states, at the resolution at which it was printed: they must be
the engine's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvplan.causes import UNEXPLAINED, explain
from kvplan.identify import Device, gpu_of, model_of
from kvplan.reconcile.capacity import capacity
from kvplan.reconcile.comparison import Comparison
from kvplan.reconcile.ledger import ledger
from kvplan.reconcile.memory import memory
from kvplan.reconcile.pools import pools
from kvplan.reconcile.predict import Prediction, predict
from kvplan.reconcile.scenario import scenario_of

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed

GPU_INDEPENDENT = {"llama.cpp"}
"""Engines whose cache is the same on every GPU: a guess is not worth a note."""
__all__ = ["Comparison", "Reconciliation", "compare", "explained", "reconcile", "scenario_of"]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What the log was taken for, every figure that both sides state, and what a reader should know."""

    observed: Observed
    predicted: Prediction
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether something was compared and no difference is without a known cause."""
        return bool(self.comparisons) and all(c.cause != UNEXPLAINED for c in self.comparisons)


def reconcile(
    observed: Observed, *, model: str | None = None, gpu: str | None = None, unsaid: Mapping[str, Any] | None = None
) -> Reconciliation:
    """Hold a log against the plan of what it describes.

    `model`, `gpu`: names that go before what the log says. `unsaid`: tp, context and version for where it is silent.
    A `KvplanError` says which model or engine is not known, or why the engine refuses the scenario as a whole.
    """
    (spec, of_model), device = model_of(observed, model), gpu_of(observed, gpu)
    scenario, of_flags = scenario_of(observed, spec, device.spec, unsaid)
    predicted = predict(scenario)
    of_gpu = () if observed.engine in GPU_INDEPENDENT else device.notes
    notes = (*of_model, *of_gpu, *of_flags, *predicted.notes, *predicted.layout.notes, *observed.notes)
    return Reconciliation(observed, predicted, explained(observed, predicted, device), notes)


def explained(observed: Observed, predicted: Prediction, device: Device) -> tuple[Comparison, ...]:
    """The comparisons with the causes of their differences."""

    def under(**changes: Any) -> Mapping[str, Comparison]:
        other = predict(replace(predicted.scenario, **changes))
        return {c.quantity: c for c in compare(observed, other, device)}

    return tuple(explain(compare(observed, predicted, device), observed, predicted, under))


def compare(observed: Observed, predicted: Prediction, device: Device) -> Iterator[Comparison]:
    """Every figure that both sides state, causes left open."""
    yield from memory(observed, predicted, device)
    yield from ledger(observed, graphs_deducted=predicted.graphs_deducted)
    yield from pools(observed, predicted)
    yield from capacity(observed, predicted)
