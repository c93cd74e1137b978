"""What a log measured of its site: the lines that a budget can take instead of its estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.errors import BadInput
from kvplan.overheads import OVERHEADS, Site, Weights
from kvplan.reconcile.memory import LINES, line_of
from kvplan.reconcile.printed import largest

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.reconcile.predict import Prediction


def site_of(observed: Observed, predicted: Prediction) -> Site:
    """The fullest rank's lines; `BadInput` where the log states none.

    Graphs are those that the budget subtracts: their estimate where this release takes it off the pool.
    """
    lines = {label: int(reading.number) for q, label in LINES.items() if (reading := line_of(observed, q))}
    estimate = largest(observed, "graph_estimate_bytes")
    if estimate and predicted.graphs_deducted:
        lines["cuda_graphs"] = int(estimate.number)
    overheads = {label: max(0, size) for label, size in lines.items() if label in OVERHEADS}
    if not overheads:
        raise BadInput(f"{observed.source}: states no overheads (non-torch memory, activation peak, CUDA graphs)")
    parallel = predicted.deployment.parallel
    weights = lines.get("weights")
    own = Weights(predicted.deployment.spec.name, parallel.tp, parallel.pp, weights) if weights else None
    return Site(observed.source, overheads, own)
