"""Blocks, tokens and concurrency by the engine's own rule, from the pool or the blocks that the log prints."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kvplan.logs import read_log
from kvplan.reconcile.comparison import Comparison, Range, compared
from kvplan.reconcile.pools import kind_of
from kvplan.reconcile.printed import kv_pool, served_pools, shows_all, stage_pools

if TYPE_CHECKING:
    from kvplan.engines.base import Capacity, Layout
    from kvplan.logs.observed import Observed, Reading
    from kvplan.reconcile.predict import Prediction

QUANTITIES = {
    "kv_tokens": "kv_tokens",
    "max_total_num_tokens": "kv_tokens",
    "full_tokens": "kv_tokens",
    "max_concurrency": "max_concurrency",
}
_BLOCKS = ("num_gpu_blocks", "profiled_num_gpu_blocks")
_BLOCK_SIZES = {"vllm": ("attention_block_size", "block_size"), "sglang": ("block_size",)}
_ANY_POOL = 2**60


@runtime_checkable
class Staged(Protocol):
    """A layout that knows pools of different bytes on pipeline stages."""

    def capacity_of_stages(self, pools_bytes: list[int]) -> Capacity:
        """What the stage with the fewest blocks leaves."""
        ...


@runtime_checkable
class Refusing(Protocol):
    """A layout that says why its engine does not start."""

    def refusal(self, pool_bytes: int) -> str | None:
        """The engine's own words; None where it starts."""
        ...


def capacity(observed: Observed, predicted: Prediction) -> Iterator[Comparison]:
    """What follows from the pool as printed, from the blocks where they are printed too, and what a refusal states."""
    layout, pool = predicted.layout, kv_pool(observed)
    for quantity in _BLOCK_SIZES.get(observed.engine, ()):
        size = observed.least(quantity)
        if size:
            yield compared(quantity, size, Range.exact(layout.block_size), "the engine's rule for this model")
            break
    if pool:
        yield from _blocks(observed, predicted, pool)
        yield from _running(observed, layout, pool)
    yield from _tokens(observed, predicted, pool)
    if pool and observed.first("needed_kv_bytes"):
        yield from _refused(observed, predicted, pool)


def _of_pool(observed: Observed, predicted: Prediction, pool: Reading) -> tuple[Capacity, Capacity, Capacity]:
    """Capacity at the pool as printed, and at both ends of its rounding.

    Of stages that printed different pools each counts for its own layers; one that printed none does not bind.
    """
    layout, half = predicted.layout, pool.resolution / 2
    stages, pp = stage_pools(observed), predicted.deployment.parallel.pp
    if pp > 1 and stages and isinstance(layout, Staged):
        sizes = [stages[s].number if s in stages else _ANY_POOL for s in range(pp)]
        return _three(lambda by: layout.capacity_of_stages([max(0, int(size + by)) for size in sizes]), half)
    spare = _spare_bytes(observed, layout)
    return _three(lambda by: layout.capacity(max(0, int(pool.number + by) - spare)), half)


def _three(at: Callable[[float], Capacity], half: float) -> tuple[Capacity, Capacity, Capacity]:
    return at(0), at(-half), at(half)


def _spare_bytes(observed: Observed, layout: Layout) -> int:
    """Bytes of the slots that are allocated beside those handed out (SGLang's spare page)."""
    kinds = [kind_of(pool, layout) for pool in served_pools(observed)] or ["kv"]
    return sum(layout.pool_bytes(kind, 0) or 0 for kind in kinds)


def _blocks(observed: Observed, predicted: Prediction, pool: Reading) -> Iterator[Comparison]:
    """Blocks of the pool; what num_gpu_blocks_override replaces is what the memory allowed."""
    at, low, high = (c.num_blocks for c in _of_pool(observed, predicted, pool))
    for quantity in _BLOCKS:
        reading = observed.least(quantity)
        if reading:
            yield compared(quantity, reading, Range(at, low, high), "the pool as printed over bytes of a block")


def _running(observed: Observed, layout: Layout, pool: Reading) -> Iterator[Comparison]:
    """SGLang's limit of requests at once: users lower it, nothing raises it above what pool and scheduler admit."""
    requests = observed.least("max_running_requests")
    if requests and not layout.pool_bytes("state", 1):
        most = int(layout.max_batch(int(pool.number), 1))
        yield compared("max_running_requests", requests, Range(most, 1, most), "at most what pool and scheduler admit")


def _tokens(observed: Observed, predicted: Prediction, pool: Reading | None) -> Iterator[Comparison]:
    """Tokens and concurrency: from the blocks where the log prints them, else the pool, else the blocks that the
    token line itself implies."""
    layout, blocks = predicted.layout, observed.least("num_gpu_blocks")
    if observed.engine != "vllm" and (layout.pool_bytes("state", 1) or not _is_whole(observed, layout)):
        return  # states and tokens share the pool by flags that logs seldom state
    if blocks and layout.bytes_per_block:
        ends = (layout.capacity(int(blocks.number) * layout.bytes_per_block),) * 3
        basis = "the blocks as printed"
    elif pool:
        ends, basis = _of_pool(observed, predicted, pool), "the pool as printed"
    else:
        implied = _implied(observed, layout)
        if implied is None:
            return
        ends, basis = (implied,) * 3, "the number of blocks that the token line implies"
    for quantity, attribute in QUANTITIES.items():
        reading = observed.least(quantity)
        if reading:
            expected = Range(*(float(getattr(end, attribute)) for end in ends))
            yield compared(quantity, reading, expected, basis)


def _is_whole(observed: Observed, layout: Layout) -> bool:
    """Whether the pools that the log shows are all that there are."""
    return shows_all(found, layout) if (found := served_pools(observed)) else True


def _implied(observed: Observed, layout: Layout) -> Capacity | None:
    """The capacity whose token line comes nearest to the printed one: tokens grow with blocks."""
    tokens, size = observed.least("kv_tokens"), layout.bytes_per_block
    if tokens is None or not size:
        return None
    low, high = 0, 1
    while layout.capacity(high * size).kv_tokens < tokens.number and high < 2**40:
        low, high = high, high * 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if layout.capacity(middle * size).kv_tokens >= tokens.number else (middle, high)
    ends = (layout.capacity(low * size), layout.capacity(high * size))
    return min(ends, key=lambda end: abs(end.kv_tokens - tokens.number))


def _refused(observed: Observed, predicted: Prediction, pool: Reading) -> Iterator[Comparison]:
    """The pool that one session needs and the length that would fit, as the engine words them, read as its log is."""
    layout = predicted.layout
    if not isinstance(layout, Refusing):
        return
    sizes = (int(pool.number + by * pool.resolution / 2) for by in (0, -1, 1))
    said = [_read(layout.refusal(size) or "") for size in sizes]
    for quantity in ("needed_kv_bytes", "estimated_max_model_len"):
        reading = observed.first(quantity)
        values = [expected.number for words in said if words and (expected := words.first(quantity))]
        if reading and values:
            basis = "one session of the maximum length" if quantity == "needed_kv_bytes" else "the pool as printed"
            yield compared(quantity, reading, Range(values[0], min(values), max(values)), basis)


def _read(words: str) -> Observed | None:
    return read_log(io.BytesIO(words.encode())) if words else None
