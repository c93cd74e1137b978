"""Whether a log's own lines add up to the pool that it prints: the engine's rule over the engine's figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvplan.reconcile.comparison import Comparison, Range, compared
from kvplan.reconcile.printed import kv_pool, non_torch, of_rank
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed, Reading

UNPRINTED_BYTES = 0.05 * GIB
"""What ledgers leave unsaid: 86 of 91 public ones of vLLM close within it (weights are printed before the profile)."""


def ledger(observed: Observed, *, graphs_deducted: bool) -> Iterator[Comparison]:
    """One comparison where every term was printed; `graphs_deducted`: whether this release takes their estimate off."""
    pool = observed.least("available_kv_bytes") or kv_pool(observed)
    if pool is None:
        return
    terms = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm}.get(observed.engine)
    found = terms(observed, pool.rank, graphs_deducted) if terms else None
    if found:
        size, half, basis = found
        yield compared("ledger_kv_bytes", pool, Range(size, size - half, size + half), basis)


Closed = tuple[float, float, str]
"""The pool that the lines leave, half the sum of their resolutions and what they leave unsaid, the rule in words."""


def graphs_of(observed: Observed, rank: str) -> Reading | None:
    """The estimate of CUDA graphs that a rank printed before the pool was sized."""
    return of_rank(observed, "graph_estimate_bytes", rank)


def _vllm(observed: Observed, rank: str, graphs_deducted: bool) -> Closed | None:
    """requested - weights - activation - non-torch, less the estimate of graphs (`determine_available_memory`)."""
    requested = of_rank(observed, "requested_bytes", rank)
    spent = [of_rank(observed, "weights_bytes", rank), of_rank(observed, "activation_bytes", rank), non_torch(observed, rank)]
    graphs = graphs_of(observed, rank) if graphs_deducted else None
    known = [reading for reading in spent if reading]
    if requested is None or len(known) < len(spent):
        return None
    basis = "requested - weights - activation - non-torch" + (" - graphs" if graphs else "") + ", as printed"
    return _closed(requested, [*known, graphs] if graphs else known, basis)


def _closed(whole: Reading, spent: Iterable[Reading], basis: str) -> Closed:
    terms = list(spent)
    half = (whole.resolution + sum(t.resolution for t in terms)) / 2 + UNPRINTED_BYTES
    return whole.number - sum(t.number for t in terms), half, basis


def _sglang(observed: Observed, rank: str, graphs_deducted: bool) -> Closed | None:
    """free after load - free before load x (1 - mem_fraction_static) (`memory_hook.py`; weights come out of the fraction)."""
    before, after = observed.least("free_before_load_bytes"), observed.least("free_after_load_bytes")
    share = observed.flags.get("mem_fraction_static")
    if not (before and after and isinstance(share, float)):
        return None
    size = after.number - before.number * (1 - share)
    return size, (after.resolution + before.resolution) / 2 + 5 * UNPRINTED_BYTES, "free after load - slack, as printed"


def _tensorrt_llm(observed: Observed, rank: str, graphs_deducted: bool) -> Closed | None:
    """(total - peak + pool of the profile run) x fraction (`_util.py`)."""
    names = ("gpu_total_bytes", "peak_bytes", "temporary_kv_bytes", "free_gpu_memory_fraction")
    found = [of_rank(observed, name, rank) for name in names]
    total, peak, temporary, share = found
    if not (total and peak and temporary and share):
        return None
    size = (total.number - peak.number + temporary.number) * share.number
    return size, sum(r.resolution for r in (total, peak, temporary)) / 2, "(total - peak + profile's pool) x fraction, as printed"
