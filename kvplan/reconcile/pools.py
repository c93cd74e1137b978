"""Each pool by its own slots: bytes of a slot times the slots that were printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvplan.logs.observed import Reading
from kvplan.reconcile.comparison import Comparison, Range, compared, summed
from kvplan.reconcile.printed import pool_size, served_pools, shows_all

if TYPE_CHECKING:
    from kvplan.engines.base import Layout
    from kvplan.logs.observed import Observed, Pool
    from kvplan.reconcile.predict import Prediction


def kind_of(pool: Pool, layout: Layout) -> str:
    """The pool as the layout names it: TensorRT-LLM calls its one pool a window as long as the longest sequence."""
    return "kv" if pool.kind == "window" and layout.pool_bytes("window", 1) is None else pool.kind


def pools(observed: Observed, predicted: Prediction) -> Iterator[Comparison]:
    """Bytes of each pool of one rank, then of all together where the engine allocates for a given context."""
    found = served_pools(observed)
    for pool in found:
        size, layout = pool_size(pool), predicted.layout
        expected = layout.pool_bytes(kind_of(pool, layout), pool.slots * (pool.streams or 1)) if pool.slots else None
        if size and expected is not None:
            yield compared(f"pool_{pool.kind}_bytes", size, Range.exact(expected), "slots as printed x bytes of a slot")
    yield from _rate(observed, predicted.layout)
    if observed.engine == "llama.cpp":
        yield from _context(found, predicted)


def _rate(observed: Observed, layout: Layout) -> Iterator[Comparison]:
    """TensorRT-LLM's bytes of one token, and its pool of so many tokens."""
    one, none = layout.pool_bytes("kv", 1), layout.pool_bytes("kv", 0)
    rate, allocated, tokens = (observed.least(q) for q in ("per_token_bytes", "allocated_kv_bytes", "kv_tokens"))
    if one is None or none is None:
        return
    if rate:
        yield compared("per_token_bytes", rate, Range.exact(one - none), "all layers of one rank")
    if allocated and tokens:
        size = layout.pool_bytes("kv", int(tokens.number)) or 0
        yield compared("allocated_kv_bytes", allocated, Range.exact(size), "tokens as printed x bytes of a token")


def _context(found: tuple[Pool, ...], predicted: Prediction) -> Iterator[Comparison]:
    """llama.cpp allocates what n_ctx and the sequences need; compared where the log shows all of its pools."""
    layout, length = predicted.layout, predicted.deployment.max_model_len
    if "n_ctx" not in predicted.scenario.engine_args:
        return
    cells = int(layout.capacity(layout.needed_bytes(length)).kv_tokens)
    for pool in found:
        if pool.kind in {"kv", "full"} and pool.slots:
            reading = Reading("kv_cells", pool.slots * (pool.streams or 1), line=pool.line)
            yield compared("kv_cells", reading, Range.exact(cells), "n_ctx and sequences, padded to 256")
    sizes = [size for pool in found if (size := pool_size(pool))]
    if sizes and shows_all(found, layout):
        whole = summed("allocated_kv_bytes", sizes)
        yield compared("allocated_kv_bytes", whole, Range.exact(layout.needed_bytes(length)), "the context as started")
