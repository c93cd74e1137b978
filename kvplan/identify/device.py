"""Which GPU a log speaks of: by its name where it states one, else by its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

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
CONTEXT_BYTES = GIB // 2
"""What driver and context hold before anything is loaded: 0.51 GiB on an H100."""
NEAR_MEMORY = 0.025
"""Drivers and ECC settings report one card within this share of the catalogue's figure."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and how it was found: `named` (by the user or the log), by its `memory`, which is then the log's own, or
    `assumed`: nothing says what it is, so no budget can be held against it. `notes`: what was guessed."""

    spec: GpuSpec
    found_by: Literal["name", "memory", "nothing"] = "name"
    notes: tuple[str, ...] = ()


def gpu_of(observed: Observed, given: str | None) -> Device:
    """The GPU that the user names, else the one that the log names, else the one of that memory."""
    if given:
        return Device(load_gpu(given))
    notes: tuple[str, ...] = ()
    named = observed.first("gpu")
    if named:
        try:
            return Device(load_gpu(str(named.value)))
        except UnknownName:
            notes = (f"the log's GPU {named.value} is not in the catalogue",)
    size = memory_bytes(observed)
    if size is None:
        unsaid = f"the log states no GPU memory; the block rules of {STAND_IN} are assumed, give --gpu"
        return Device(load_gpu(STAND_IN), "nothing", (*notes, unsaid))
    gpu, note = _of_memory(size)
    return Device(replace(gpu, memory_bytes=size), "memory", (*notes, note))


def memory_bytes(observed: Observed) -> int | None:
    """The device's memory: as printed; what was requested over the fraction requested; what SGLang found free, and
    the context that it does not count."""
    total, free = observed.first("gpu_total_bytes"), observed.first("free_before_load_bytes")
    if total:
        return int(total.number)
    requested, share = observed.first("requested_bytes"), observed.first("gpu_memory_utilization")
    if requested and share and share.number > 0:
        return int(requested.number / share.number)
    return int(free.number) + CONTEXT_BYTES if free else None


def _of_memory(size_bytes: int) -> tuple[GpuSpec, str]:
    gpus = sorted(map(load_gpu, gpu_names()), key=lambda gpu: abs(gpu.memory_bytes - size_bytes))
    nearest = gpus[0]
    size = f"{size_bytes / GIB:.2f} GiB"
    if abs(nearest.memory_bytes / size_bytes - 1) > NEAR_MEMORY:
        unlike = f"no GPU of the catalogue has {size}; the block rules of {STAND_IN} are assumed, give --gpu"
        return load_gpu(STAND_IN), unlike
    alike = [g.name for g in gpus[1:] if abs(g.memory_bytes / nearest.memory_bytes - 1) < SAME_MEMORY]
    others = f"; {', '.join(alike[:4])} have as much" if alike else ""
    return nearest, f"GPU by its memory of {size}: {nearest.name}{others}"
