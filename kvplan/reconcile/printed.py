"""Which of several ranks' figures counts: the fullest for what memory goes to, the least for what a pool holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.reconcile.comparison import summed

if TYPE_CHECKING:
    from kvplan.engines.base import Layout
    from kvplan.logs.observed import Observed, Pool, Reading

_KINDS = {"kv": frozenset({"full", "swa"}), "window": frozenset({"full", "swa"})}
"""Pools that hold several kinds of layers."""
_STAGE = re.compile(r"PP(\d+)")


def largest(observed: Observed, quantity: str) -> Reading | None:
    """The fullest rank's reading."""
    numbers = [r for r in observed.each(quantity) if isinstance(r.value, (int, float))]
    return max(numbers, key=lambda r: r.number, default=None)


def of_rank(observed: Observed, quantity: str, rank: str) -> Reading | None:
    """One rank's reading."""
    return next((r for r in observed.each(quantity) if r.rank == rank), None)


def non_torch(observed: Observed, rank: str | None = None) -> Reading | None:
    """Memory outside torch: as printed, or what vLLM 0.33 calls consumed (weights + non-torch) less the weights."""

    def find(quantity: str) -> Reading | None:
        return largest(observed, quantity) if rank is None else of_rank(observed, quantity, rank)

    stated, consumed, weights = find("non_torch_bytes"), find("consumed_bytes"), find("weights_bytes")
    if stated or not (consumed and weights):
        return stated
    size, resolution = consumed.number - weights.number, consumed.resolution + weights.resolution
    return replace(consumed, name="non_torch_bytes", value=int(size), resolution=resolution)


def stage_pools(observed: Observed) -> dict[int, Reading]:
    """Pipeline stage -> the least pool that its ranks printed."""
    found: dict[int, Reading] = {}
    for reading in observed.each("available_kv_bytes"):
        stage = _STAGE.search(reading.rank)
        if stage:
            index = int(stage[1])
            found[index] = min(found.get(index, reading), reading, key=lambda r: r.number)
    return found


def served_pools(observed: Observed) -> tuple[Pool, ...]:
    """The served model's pools on the rank whose pools are smallest."""
    ranks: dict[str, list[Pool]] = {}
    for pool in observed.pools:
        if pool.context == 0:
            ranks.setdefault(pool.rank, []).append(pool)
    return tuple(min(ranks.values(), key=_whole_size, default=()))


def _whole_size(pools: Iterable[Pool]) -> float:
    return sum(size.number for pool in pools if (size := pool_size(pool)))


def pool_size(pool: Pool) -> Reading | None:
    """Bytes of a pool: its total, or the sum of its parts; None where it states none."""
    if pool.total:
        return pool.total
    parts = list(pool.parts.values())
    return replace(summed("pool_bytes", parts), line=pool.line) if parts else None


def shows_all(pools: Iterable[Pool], layout: Layout) -> bool:
    """Whether each kind of layers of the model has its slots in one of the pools."""
    shown = frozenset[str]().union(*(_KINDS.get(pool.kind, {pool.kind}) for pool in pools))
    return {kind for kind in ("full", "swa", "state") if layout.pool_bytes(kind, 1)} <= shown


def kv_pool(observed: Observed) -> Reading | None:
    """The whole pool of one rank: what is left for it (vLLM), what was allocated (the others)."""
    if observed.engine == "vllm":
        return observed.least("available_kv_bytes")
    sizes = [size for pool in served_pools(observed) if (size := pool_size(pool))]
    allocated = observed.least("allocated_kv_bytes") or observed.least("kv_pool_bytes")
    return summed("kv_pool_bytes", sizes) if sizes else allocated


def left_for_pool(observed: Observed) -> Reading | None:
    """What memory left for the pool, where it is printed, else the pool itself."""
    return observed.least("available_kv_bytes") or kv_pool(observed)
