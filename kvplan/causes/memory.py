"""Why memory lines and the pool that they leave differ from the estimates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.causes.capacity import speculation
from kvplan.causes.case import POOLS
from kvplan.model import Quantization
from kvplan.units import GIB, format_bytes
from kvplan.weight_formats import weight_format
from kvplan.weights import params_by_part

if TYPE_CHECKING:
    from kvplan.causes.case import Case
    from kvplan.logs.observed import Reading

_FRACTIONS = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}
WEIGHTS = {"weights_bytes"}
FREE = ("free_bytes", "free_before_load_bytes")
FORMATS = ("fp8", "int4", "nvfp4")
"""Formats of quantized copies; those of 4 bits differ in their scales."""
LINES = {
    "weights_bytes": "weights", "activation_bytes": "activation", "non_torch_bytes": "non_torch",
    "graph_estimate_bytes": "cuda_graphs",
}  # fmt: skip
CLOSE_BYTES = 0.15 * GIB
"""Within which one line accounts for a gap."""
_MAIN_SHARE = 0.25
"""Of the gap: less than that is not what it follows from."""
USUAL_CONTEXT_BYTES = 2.2 * GIB
"""The most that driver, context and collectives held on an empty card."""


def quantized(case: Case) -> str | None:
    """The checkpoint stores its weights in another format than the bundled one."""
    if case.quantity not in WEIGHTS:
        return None
    model = case.scenario.model
    own = _bits(model.quantization.weight_format) if model.quantization else 16
    for name in FORMATS:
        copy = replace(model, quantization=Quantization(quant_method=name, weight_format=name))
        if _bits(name) < own and case.agrees_under(model=copy):
            return f"weights in {_bits(name)} bits explain it: a quantized copy"
    if own < 16 and case.agrees_under(model=replace(model, quantization=None)):
        return f"weights in {model.torch_dtype} explain it: the copy is not quantized, or was widened while it loaded"
    return None


def _bits(name: str | None) -> int:
    """Bits of an element of a weight format, scales left out."""
    return weight_format(name).storage.bits if name else 16


def draft_weights(case: Case) -> str | None:
    """A drafter's weights are loaded with the model's."""
    stated = speculation(case)
    if stated is None or case.quantity not in WEIGHTS or not 0 < case.gap < 0.5 * case.comparison.predicted:
        return None
    return f"{stated} drafts: {format_bytes(case.gap)} of weights are its own"


def graph_estimate(case: Case) -> str | None:
    """The estimate of CUDA graphs is taken off the pool by default since 0.21, and was only printed before."""
    graphs = case.observed.first("graph_estimate_bytes")
    if case.quantity != "ledger_kv_bytes" or graphs is None:
        return None
    if abs(case.gap - graphs.number) < CLOSE_BYTES / 3:
        return f"the estimate of CUDA graphs, {format_bytes(graphs.number)}, was not taken off the pool"
    if abs(case.gap + graphs.number) < CLOSE_BYTES / 3:
        return f"the estimate of CUDA graphs, {format_bytes(graphs.number)}, was taken off the pool"
    return None


def lines_above(case: Case) -> str | None:
    """The pool is what remains: with the lines as printed instead of estimated it is what was printed."""
    if case.quantity not in POOLS or case.predicted.budget is None:
        return None
    readings = {label: r for q, label in LINES.items() if (r := _largest(case, q))}
    budget = {line.label: line for line in case.predicted.budget.lines}
    given = {label: int(r.number) for label, r in readings.items() if label in budget}
    closes = (ledger := case.under().get("ledger_kv_bytes")) is not None and ledger.agrees
    if not given or not (closes or case.agrees_under(given_bytes=given)):
        return None
    label = max(given, key=lambda label: abs(given[label] - budget[label].bytes))
    if abs(given[label] - budget[label].bytes) < _MAIN_SHARE * abs(case.gap):
        return None
    printed, estimated = format_bytes(given[label]), format_bytes(budget[label].bytes)
    return f"follows from {label.replace('_', ' ')}: {printed} against {estimated}"


def _largest(case: Case, quantity: str) -> Reading | None:
    numbers = [r for r in case.observed.each(quantity) if isinstance(r.value, (int, float))]
    return max(numbers, key=lambda r: r.number, default=None)


def unsaid_fraction(case: Case) -> str | None:
    """The memory fraction, which moves the pool, is not stated."""
    budget, name = case.predicted.budget, _FRACTIONS.get(case.observed.engine)
    if case.quantity not in POOLS or budget is None or name is None or case.predicted.deployment.memory_fraction:
        return None
    share = round((budget.requested_bytes + case.gap) / budget.gpu_total_bytes, 2)
    if not 0 < share < 1 or not case.agrees_under(gpu_memory_utilization=share):
        return None
    return f"the log does not state {name}; {share:g} explains it"


def unified(case: Case) -> str | None:
    """Where CPU and GPU share memory, the page cache and other processes count as used."""
    shared = case.predicted.deployment.gpu.memory_kind == "unified"
    if not shared or case.quantity not in {"non_torch_bytes", *FREE, *POOLS}:
        return None
    less = case.gap if case.quantity == "non_torch_bytes" else -case.gap
    return f"unified memory: {format_bytes(less)} are the system's and the page cache's" if less > CLOSE_BYTES else None


def leftover(case: Case) -> str | None:
    """Another process holds memory: less was free at the start than an empty card has."""
    free = next((r for quantity in FREE if (r := case.observed.least(quantity))), None)
    if case.predicted.budget is None or free is None:
        return None
    gone = case.predicted.budget.gpu_total_bytes - free.number
    of_start = case.quantity in FREE
    lost = case.gap if case.quantity == "non_torch_bytes" else -case.gap
    of_pool = case.quantity in {*POOLS, "non_torch_bytes"} and abs(lost - gone) < 0.25 * gone
    if gone < USUAL_CONTEXT_BYTES or not (of_start or of_pool):
        return None
    return f"{format_bytes(gone)} were taken before this process started: another process, or one that is not gone yet"


def encoder(case: Case) -> str | None:
    """A multimodal encoder: its weights where it is not loaded, its largest input in the profile run."""
    parts = params_by_part(case.scenario.model)
    elements = parts.get("vision", 0) + parts.get("audio", 0)
    if not elements:
        return None
    size = 2 * elements
    if case.quantity == "weights_bytes" and abs(case.gap + size) < max(CLOSE_BYTES, 0.1 * size):
        return f"the encoder's {format_bytes(size)} were not loaded"
    if case.quantity == "activation_bytes" and 0 < case.gap < 8 * GIB:
        return f"a multimodal model: the profile run encodes its largest input, {format_bytes(case.gap)} here"
    return None
