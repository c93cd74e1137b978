"""Which GPU a log speaks of: by its name where it states one, else by its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.catalog import gpu_names, load_gpu
from kvplan.errors import UnknownName
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec
    from kvplan.logs.observed import Observed

STAND_IN = "h100"
"""Its block rules are taken where nothing says which GPU it is."""
SAME_MEMORY = 0.002
"""Cards whose memory differs by less cannot be told apart by it."""
NEAR_MEMORY = 0.02
"""Drivers and ECC settings report one card within this share of the catalogue's figure."""


def gpu_of(observed: Observed, given: str | None) -> tuple[GpuSpec, tuple[str, ...]]:
    """The GPU that the user names, else the one that the log names, else the one of that memory; notes on guesses."""
    if given:
        return load_gpu(given), ()
    notes = []
    for name in _names(observed):
        try:
            return load_gpu(name), ()
        except UnknownName:
            notes.append(f"the log's GPU {name} is not in the catalogue")
    size = memory_bytes(observed)
    if size is None:
        return load_gpu(STAND_IN), (*notes, f"the log states no GPU memory; the rules of {STAND_IN} are assumed, give --gpu")
    gpu, note = _of_memory(size)
    return gpu, (*notes, note)


def _names(observed: Observed) -> Iterator[str]:
    return (str(reading.value) for reading in observed.each("gpu")[:1])


def memory_bytes(observed: Observed) -> int | None:
    """The device's memory: as printed, or what was requested of it over the fraction that was requested."""
    total = observed.first("gpu_total_bytes")
    if total:
        return int(total.number)
    requested, share = observed.first("requested_bytes"), observed.first("gpu_memory_utilization")
    return int(requested.number / share.number) if requested and share and share.number > 0 else None


def _of_memory(size_bytes: int) -> tuple[GpuSpec, str]:
    gpus = sorted(map(load_gpu, gpu_names()), key=lambda gpu: abs(gpu.memory_bytes - size_bytes))
    nearest = gpus[0]
    if abs(nearest.memory_bytes / size_bytes - 1) > NEAR_MEMORY:
        stand_in = replace(load_gpu(STAND_IN), memory_bytes=size_bytes)
        return stand_in, f"no GPU of the catalogue has {size_bytes / GIB:.2f} GiB; the block rules of {STAND_IN} are assumed, give --gpu"
    alike = [g.name for g in gpus[1:] if abs(g.memory_bytes / nearest.memory_bytes - 1) < SAME_MEMORY]
    others = f"; {', '.join(alike[:4])} have as much" if alike else ""
    return nearest, f"GPU by its memory of {size_bytes / GIB:.2f} GiB: {nearest.name}{others}"
