"""How much a run measures, so that it ends within a time that is known before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.errors import BadInput
from kvplan.units import GIB, MIB
from kvplan.validate.paged import Extent


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of everything on one kind of device. `total_s` is kept by measuring fewer held-out shapes; it leaves
    what loading torch and writing the answer take of the 20, 90 and 300 s that are promised."""

    total_s: float
    probing_s: float
    timing_s: float
    kinds_s: float
    memory_bytes: int
    extent: Extent
    kv_dtypes: tuple[str, ...]


_CPU, _GPU = Extent(2, 1026), Extent(8, 8194)
"""Two tokens past a whole number of blocks, so that the last decode steps open a new one."""
EFFORTS = {
    ("cpu", "quick"): Effort(16, 0.6, 0.08, 0.3, 64 * MIB, Extent(1, 1026), ("bf16",)),
    ("cpu", "default"): Effort(85, 5.0, 0.6, 4.0, 256 * MIB, _CPU, ("bf16",)),
    ("cpu", "full"): Effort(290, 15.0, 2.5, 15.0, GIB, _CPU, ("bf16",)),
    ("cuda", "quick"): Effort(17, 1.0, 0.05, 0.5, GIB, Extent(4, 4098), ("bf16",)),
    ("cuda", "default"): Effort(80, 4.0, 0.2, 2.0, 4 * GIB, _GPU, ("bf16", "fp8")),
    ("cuda", "full"): Effort(280, 15.0, 0.5, 5.0, 8 * GIB, _GPU, ("bf16", "fp8", "fp8_ds_mla")),
}


def effort(quick: bool, full: bool) -> str:
    """The name of an effort from two flags."""
    if quick and full:
        raise BadInput("--quick and --full: give one of them")
    return "quick" if quick else "full" if full else "default"
