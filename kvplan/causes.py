"""Why a printed figure differs from a predicted one: the causes that are known, tried in turn, else "unexplained"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.plan import plan
from kvplan.units import format_bytes

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.plan import Plan, Scenario
    from kvplan.reconcile import Comparison

GIB = 2**30
TOKEN_LINE_VERSIONS = ("0.8.5", "0.19", "0.33")
"""vLLM releases whose token lines differ: blocks x block; blocks / groups x block; concurrency x length."""


@dataclass(frozen=True, slots=True)
class Case:
    """One difference with all that is known around it."""

    observed: Observed
    scenario: Scenario
    free: Plan | None
    comparison: Comparison

    @property
    def ratio(self) -> float:
        """Observed over predicted; 0 where nothing was predicted."""
        return self.comparison.observed / self.comparison.predicted if self.comparison.predicted else 0.0


Rule = Callable[[Case], str | None]


def explain(
    observed: Observed, scenario: Scenario, free: Plan | None, comparisons: Iterable[Comparison]
) -> Iterator[Comparison]:
    """The comparisons, those that differ with their cause."""
    for comparison in comparisons:
        if comparison.agrees:
            yield comparison
            continue
        case = Case(observed, scenario, free, comparison)
        cause = next((text for rule in RULES if (text := rule(case))), "unexplained")
        yield replace(comparison, cause=cause)


def several_ranks(case: Case) -> str | None:
    """The token line is the least over ranks, a GiB line is one rank's."""
    pools = {r.value for r in case.observed.each("available_kv_bytes")}
    if len(pools) > 1 and case.comparison.unit == "count":
        return f"{len(pools)} ranks printed different pools; tokens are the least over ranks, a GiB line is one rank's"
    return None


def overridden(case: Case) -> str | None:
    """num_gpu_blocks_override replaces what the memory allows."""
    if case.scenario.engine_args.get("num_gpu_blocks_override") or case.observed.first("profiled_num_gpu_blocks"):
        return "num_gpu_blocks_override replaces the blocks that the memory allows"
    return None


def other_token_line(case: Case) -> str | None:
    """The token line of another release: hybrids before 0.22 print blocks over groups."""
    if case.comparison.quantity != "kv_tokens" or case.observed.engine != "vllm":
        return None
    pool = case.observed.least("available_kv_bytes")
    if pool is None:
        return None
    for version in TOKEN_LINE_VERSIONS:
        other = replace(case.scenario, engine=f"vllm@{version}", kv_pool_bytes=int(pool.number))
        try:
            tokens = plan(other).capacity.kv_tokens
        except KvplanError:
            continue
        if tokens and abs(case.comparison.observed / tokens - 1) < 0.002:
            return f"this is how vLLM {version} prints tokens; the log states {case.observed.version or 'no version'}"
    return None


def draft(case: Case) -> str | None:
    """A draft model's layers and weights."""
    speculative = case.scenario.engine_args.get("speculative_config") or case.scenario.engine_args.get("speculative_algorithm")
    if speculative and case.ratio != 1:
        return f"speculation ({speculative}): the draft takes its part of blocks and memory"
    return None


def padding(case: Case) -> str | None:
    """Layers that vLLM adds to even out groups."""
    layers = case.observed.first("padding_layers")
    if layers and case.comparison.unit == "count":
        return f"the engine added {layers.value} padding layers to even out its groups"
    return None


def graph_estimate(case: Case) -> str | None:
    """The estimate of CUDA graphs is taken off the pool, or is not."""
    if case.comparison.quantity != "available_kv_bytes" or case.free is None:
        return None
    graphs = case.observed.first("graph_estimate_bytes") or case.observed.first("graph_bytes")
    if graphs is None:
        return None
    gap = abs(case.comparison.observed - case.comparison.predicted)
    size = graphs.number
    return f"CUDA graphs of {format_bytes(size)} explain it" if abs(gap - size) < 0.15 * GIB else None


def leftover(case: Case) -> str | None:
    """Another process holds memory: less was free at start than an empty card has."""
    free = case.observed.first("free_bytes") or case.observed.first("free_before_load_bytes")
    if free is None or case.free is None or case.comparison.unit != "bytes":
        return None
    gone = case.free.budget.gpu_total_bytes - free.number
    return f"{format_bytes(gone)} were taken before this process started" if gone > 2 * GIB else None


def weights_differ(case: Case) -> str | None:
    """What is loaded is not what the configuration says: another quantization, adapters, padding, a draft."""
    if case.comparison.quantity not in {"weights_bytes", "model_buffer_bytes"}:
        return None
    if case.ratio > 1.8:
        return "about twice the predicted weights: loaded in a wider dtype, or a second model"
    if case.ratio < 0.6:
        return "far fewer weights than predicted: a quantized copy, or more ranks than the log states"
    return None


def follows_weights(case: Case) -> str | None:
    """The pool is what remains: a difference in a line above moves it."""
    if case.comparison.quantity not in {"available_kv_bytes", "kv_pool_bytes", "allocated_kv_bytes"} or case.free is None:
        return None
    lines = {"weights_bytes": "weights", "activation_bytes": "activation", "non_torch_bytes": "non_torch"}
    for quantity, label in lines.items():
        reading = case.observed.first(quantity)
        line = next((x for x in case.free.budget.lines if x.label == label), None)
        if reading and line and abs(reading.number - line.bytes) > 0.5 * abs(
            case.comparison.observed - case.comparison.predicted
        ):
            return f"follows from {label}: {format_bytes(reading.number)} against {format_bytes(line.bytes)}"
    return None


RULES: tuple[Rule, ...] = (
    overridden, several_ranks, other_token_line, padding, draft, graph_estimate, weights_differ, follows_weights, leftover,
)  # fmt: skip
