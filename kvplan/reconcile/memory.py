"""Where one GPU's memory went: each line as printed beside the estimate of the budget, with its range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.reconcile.comparison import Comparison, Range, compared
from kvplan.reconcile.printed import largest, left_for_pool, non_torch
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.budget import Budget
    from kvplan.identify import Device
    from kvplan.logs.observed import Observed, Reading
    from kvplan.reconcile.predict import Prediction

LINES = {
    "weights_bytes": "weights",
    "non_torch_bytes": "non_torch",
    "activation_bytes": "activation",
    "graph_bytes": "cuda_graphs",
    "compute_buffer_bytes": "compute_buffer",
}
"""Quantities -> lines of a budget."""
_FREE_AT_START = ("free_bytes", "free_before_load_bytes")
_CONTEXT = Range(0.5 * GIB, 0.2 * GIB, 2.2 * GIB)
"""What driver, context and collectives hold before the first measurement: 0.51 GiB on one H100, 1.5 to 2.1 with TP."""
_DRIVERS = 0.003
"""Drivers report one card within this share; of unified memory, what the system leaves to it varies more."""
_SHARED_MEMORY = 0.03
_LAYERS_DECIDE = {"llama.cpp"}
"""Engines that allocate what the context needs, not what memory is left."""


def line_of(observed: Observed, quantity: str) -> Reading | None:
    """The fullest rank's figure; a GGUF file's weights follow from no rule, so they are not compared."""
    if quantity == "non_torch_bytes":
        return non_torch(observed)
    if quantity == "weights_bytes" and observed.flags.get("quantization") == "gguf":
        return None
    return largest(observed, quantity)


def memory(observed: Observed, predicted: Prediction, device: Device) -> Iterator[Comparison]:
    """The device, the lines, and the pool that is left; of a GPU that nobody named, the lines alone."""
    budget = predicted.budget
    if budget is None:
        return
    if device.found_by != "nothing":
        yield from _device(observed, budget, device)
    lines = {line.label: line for line in (*budget.lines, *budget.beside)}
    for quantity, label in LINES.items():
        reading = line_of(observed, quantity)
        if reading and label in lines:
            line = lines[label]
            yield compared(quantity, reading, Range(line.bytes, line.low_bytes, line.high_bytes), line.rule)
    if device.found_by != "nothing" and observed.engine not in _LAYERS_DECIDE:
        yield from _pool(observed, budget)


def _device(observed: Observed, budget: Budget, device: Device) -> Iterator[Comparison]:
    """The card's memory, where it is not what the card was found by, and what of it was free at the start."""
    size, total = budget.gpu_total_bytes, observed.first("gpu_total_bytes")
    share = _SHARED_MEMORY if device.spec.memory_kind == "unified" else _DRIVERS
    if total and device.found_by == "name":
        expected = Range(size, size * (1 - share), size * (1 + share))
        yield compared("gpu_total_bytes", total, expected, f"the catalogue's {device.spec.name}")
    size = int(total.number) if total else size
    for quantity in _FREE_AT_START if total or device.found_by == "name" else ():
        free = observed.least(quantity)
        if free:
            expected = Range(size - _CONTEXT.value, size - _CONTEXT.high, size - _CONTEXT.low)
            yield compared(quantity, free, expected, "an empty card less its context")


def _pool(observed: Observed, budget: Budget) -> Iterator[Comparison]:
    """What is left for the pool; the exact size where a flag states it."""
    pool = left_for_pool(observed)
    if pool is None:
        return
    stated = observed.flags.get("kv_cache_memory_bytes")
    if type(stated) is int:
        yield compared("available_kv_bytes", pool, Range.exact(stated), "kv_cache_memory_bytes")
        return
    expected = Range(budget.kv_pool_bytes, *budget.kv_pool_range)
    size = pool if pool.number > 0 else replace(pool, value=0)  # a pool below nothing is none
    yield compared(pool.name, size, expected, f"what the estimates leave: {budget.request_rule}")
