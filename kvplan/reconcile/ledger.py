"""Whether a log's own lines add up to the pool that it prints: the engine's rule over the engine's figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvplan.reconcile.comparison import Comparison, Range, compared
from kvplan.reconcile.printed import left_for_pool, non_torch, of_rank
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed, Reading

UNPRINTED_BYTES = 0.05 * GIB
"""What ledgers leave unsaid: 86 of 91 public ones of vLLM close within it (weights are printed before the profile)."""
_SGLANG_UNPRINTED_BYTES = 0.25 * GIB
"""The same of SGLang: two public ledgers close within 0.2 GiB."""


def ledger(observed: Observed, *, graphs_deducted: bool) -> Iterator[Comparison]:
    """One comparison where every term was printed; `graphs_deducted`: whether this release takes their estimate off."""
    pool = left_for_pool(observed)
    if pool is None:
        return
    match observed.engine:
        case "vllm":
            found = _vllm(observed, pool.rank, graphs_deducted)
        case "sglang":
            found = _sglang(observed)
        case "tensorrt-llm":
            found = _tensorrt_llm(observed, pool.rank)
        case _:
            found = None
    if found:
        yield compared("ledger_kv_bytes", pool, *found)


def _within(size: float, half: float) -> Range:
    return Range(size, size - half, size + half)


def _rounding(*terms: Reading) -> float:
    return sum(term.resolution for term in terms) / 2


def _vllm(observed: Observed, rank: str, graphs_deducted: bool) -> tuple[Range, str] | None:
    """requested - weights - activation - non-torch, less the estimate of graphs (`determine_available_memory`)."""
    requested, weights = of_rank(observed, "requested_bytes", rank), of_rank(observed, "weights_bytes", rank)
    activation, outside = of_rank(observed, "activation_bytes", rank), non_torch(observed, rank)
    if not (requested and weights and activation and outside):
        return None
    graphs = of_rank(observed, "graph_estimate_bytes", rank) if graphs_deducted else None
    spent = [weights, activation, outside, *([graphs] if graphs else [])]
    size = requested.number - sum(term.number for term in spent)
    rule = f"requested - weights - activation - non-torch{' - graphs' if graphs else ''}, as printed"
    return _within(size, _rounding(requested, *spent) + UNPRINTED_BYTES), rule


def _sglang(observed: Observed) -> tuple[Range, str] | None:
    """free after load - free before load x (1 - mem_fraction_static): weights come out of the fraction
    (`memory_hook.py`)."""
    before, after = observed.least("free_before_load_bytes"), observed.least("free_after_load_bytes")
    share = observed.flags.get("mem_fraction_static")
    if not (before and after and isinstance(share, float)):
        return None
    size = after.number - before.number * (1 - share)
    return _within(size, _rounding(before, after) + _SGLANG_UNPRINTED_BYTES), "free after load - slack, as printed"


def _tensorrt_llm(observed: Observed, rank: str) -> tuple[Range, str] | None:
    """(total - peak + pool of the profile run) x fraction (`_util.py`)."""
    names = ("gpu_total_bytes", "peak_bytes", "temporary_kv_bytes", "free_gpu_memory_fraction")
    total, peak, temporary, share = (of_rank(observed, name, rank) for name in names)
    if not (total and peak and temporary and share):
        return None
    size = (total.number - peak.number + temporary.number) * share.number
    rule = "(total - peak + profile's pool) x fraction, as printed"
    return _within(size, _rounding(total, peak, temporary)), rule
