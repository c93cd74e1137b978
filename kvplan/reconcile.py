"""What an engine said against what kvplan predicts, line by line, with the cause of each difference.

Two plans answer two questions. The *free* plan knows only what was asked for: its weights, peaks and pool are estimates
with ranges. The *given* plan is told the pool that the log states, at the resolution at which it was printed: its blocks,
tokens and concurrency must then be the engine's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvplan.budget import Line
from kvplan.engines import engine as find_engine
from kvplan.errors import BadInput, KvplanError
from kvplan.plan import Plan, Scenario, plan

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec
    from kvplan.logs.observed import Observed, Reading
    from kvplan.model import ModelSpec

FLAGS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "tensor_parallel_size": "tp", "pipeline_parallel_size": "pp", "data_parallel_size": "dp",
        "decode_context_parallel_size": "dcp", "max_model_len": "context", "max_seq_len": "context",
        "kv_cache_dtype": "kv_dtype", "gpu_memory_utilization": "gpu_memory_utilization", "block_size": "block_size",
        "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens",
    },
    "sglang": {
        "tp_size": "tp", "pp_size": "pp", "dp_size": "dp", "context_length": "context", "kv_cache_dtype": "kv_dtype",
        "mem_fraction_static": "gpu_memory_utilization", "page_size": "block_size",
        "max_running_requests": "max_num_seqs", "chunked_prefill_size": "max_num_batched_tokens",
    },
    "tensorrt-llm": {
        "tensor_parallel_size": "tp", "tp_size": "tp", "pipeline_parallel_size": "pp", "pp_size": "pp",
        "max_seq_len": "context", "kv_cache_dtype": "kv_dtype", "free_gpu_memory_fraction": "gpu_memory_utilization",
        "tokens_per_block": "block_size", "max_batch_size": "max_num_seqs", "max_num_tokens": "max_num_batched_tokens",
    },
    "llama.cpp": {"n_ctx": "context", "n_seq_max": "max_num_seqs", "n_ubatch": "max_num_batched_tokens"},
}  # fmt: skip
"""Engine flags that a scenario has a name for; all others pass through as engine arguments."""
_COUNTS = {"tp", "pp", "dp", "dcp", "context", "block_size", "max_num_seqs", "max_num_batched_tokens"}
_BUDGET_LINES = {
    "weights_bytes": "weights",
    "model_buffer_bytes": "weights",
    "non_torch_bytes": "non_torch",
    "activation_bytes": "activation",
    "graph_bytes": "cuda_graphs",
    "compute_buffer_bytes": "compute_buffer",
}
_POOLS = ("available_kv_bytes", "allocated_kv_bytes", "kv_pool_bytes")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity: what was printed, what was predicted with its range, and why they differ if they do."""

    quantity: str
    unit: str
    observed: float
    predicted: float
    low: float
    high: float
    agrees: bool
    basis: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The scenario as read from the log, both plans, and the comparisons."""

    scenario: Scenario
    free: Plan | None
    given: Plan | None
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]


def scenario_of(
    observed: Observed, model: ModelSpec, gpu: GpuSpec, unsaid: Mapping[str, Any] | None = None
) -> Scenario:
    """The scenario that a log's flags and facts describe; `unsaid`: tp, context and version where it says nothing."""
    known = {name: value for name, value in (unsaid or {}).items() if value is not None}
    names = FLAGS.get(observed.engine)
    if names is None:
        raise BadInput(f"{observed.source}: kvplan has no engine {observed.engine!r} to hold this log against")
    args = find_engine(observed.engine).args
    values: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for flag, value in observed.flags.items():
        name = names.get(flag)
        if value is None or (name in values and name is not None):
            continue
        if name is None:
            if flag in args:
                rest[flag] = value
        elif name not in _COUNTS or (type(value) is int and value > 0):
            values[name] = value
    for reading, name in (("concurrency_context_tokens", "context"), ("context_len", "context"), ("needed_context_tokens", "context")):
        stated = observed.first(reading)
        if stated and name not in values:
            values[name] = int(stated.number)
    if isinstance(rest.get("dtype"), str):
        rest["dtype"] = rest["dtype"].removeprefix("torch.")
    values["kv_dtype"] = _dtype(values.get("kv_dtype") or _pool_dtype(observed))
    if observed.engine == "sglang" and values.get("dp", 1) > 1 and "tp" in values:
        values["tp"] = max(1, values["tp"] // values["dp"])
    version = observed.version or known.get("version")
    engine = f"{observed.engine}@{version}" if version else observed.engine
    known.pop("version", None)
    return Scenario(model=model, gpu=gpu, engine=engine, engine_args=rest, **{**known, **values})


def measured_overheads(observed: Observed) -> dict[str, int]:
    """The overheads of this site by budget line: the fullest rank's; weights are the model's, not the site's."""
    found = {}
    for quantity, label in _BUDGET_LINES.items():
        reading = _largest(observed, quantity)
        if reading and label in {"non_torch", "activation", "cuda_graphs"}:
            found[label] = int(reading.number)
    if not found:
        raise BadInput(f"{observed.source}: states no overheads (non-torch memory, activation peak, CUDA graphs)")
    return found


def _pool_dtype(observed: Observed) -> str | None:
    """The element type that a pool states, where flags say nothing."""
    types = {t.removeprefix("torch.") for pool in observed.pools if pool.context == 0 for t in pool.types.values()}
    return types.pop() if len(types) == 1 else None


def _dtype(name: object) -> str:
    """A KV dtype as flags spell it; what kvplan does not know is left to the engine."""
    from kvplan.storage import kv_format

    text = str(name or "auto").lower()
    try:
        return kv_format(text).name
    except KvplanError:
        return "auto"


def reconcile(observed: Observed, scenario: Scenario) -> Reconciliation:
    """Every quantity that both sides state."""
    notes: list[str] = list(observed.notes)
    free = _planned(scenario, notes)
    pool = next((r for name in _POOLS if (r := observed.least(name))), None)
    given = _planned(replace(scenario, kv_pool_bytes=int(pool.number)), notes) if pool else None
    found: list[Comparison] = []
    if free:
        found += _budget(observed, free)
        found += _pools(observed, free)
    if given and pool:
        found += _capacity(observed, scenario, given, pool)
    from kvplan.causes import explain

    return Reconciliation(scenario, free, given, tuple(explain(observed, scenario, free, found)), tuple(notes))


def _planned(scenario: Scenario, notes: list[str]) -> Plan | None:
    try:
        return plan(scenario)
    except KvplanError as reason:
        notes.append(str(reason))
        return None


def _budget(observed: Observed, free: Plan) -> Iterator[Comparison]:
    """Memory lines, each with the estimate's range."""
    total = observed.first("gpu_total_bytes")
    if total:
        size = free.budget.gpu_total_bytes
        yield _compared("gpu_total_bytes", total, size, size * 0.997, size * 1.003, "the catalogue")
    lines = {line.label: line for line in (*free.budget.lines, *free.budget.beside)}
    for quantity, label in _BUDGET_LINES.items():
        reading = _largest(observed, quantity)
        if reading and label in lines:
            line: Line = lines[label]
            yield _compared(quantity, reading, line.bytes, line.low_bytes, line.high_bytes, line.rule)
    for name in _POOLS:
        reading = observed.least(name)
        if reading:
            low, high = free.budget.kv_pool_range
            yield _compared(name, reading, free.budget.kv_pool_bytes, low, high, free.budget.request_rule)
            return


def _pools(observed: Observed, free: Plan) -> Iterator[Comparison]:
    """Bytes of each pool from its own slots: this is the cost of a token, to the resolution of the print."""
    for pool in observed.pools:
        size = free.layout.pool_bytes(pool.kind, pool.slots * (pool.streams or 1)) if pool.slots else None
        parts = [pool.total] if pool.total else list(pool.parts.values())
        if size and parts and pool.context == 0:
            value, half = sum(p.number for p in parts), sum(p.resolution for p in parts) / 2
            name = f"{pool.kind}_pool_bytes"
            yield Comparison(name, "bytes", value, size, size, size, abs(value - size) <= half, "slots as printed x bytes of a slot")
    stated = observed.first("per_token_bytes")
    if stated:
        cost = free.bytes_per_token_per_rank
        yield _compared("per_token_bytes", stated, cost, cost, cost, "the growing layers of one rank")


def _largest(observed: Observed, name: str) -> Reading | None:
    """The fullest rank's reading."""
    numbers = [r for r in observed.each(name) if isinstance(r.value, (int, float))]
    return max(numbers, key=lambda r: r.number, default=None)


def _compared(quantity: str, reading: Reading, predicted: float, low: float, high: float, basis: str) -> Comparison:
    value = reading.number
    half = reading.resolution / 2
    agrees = low - half <= value <= high + half
    unit = "bytes" if quantity.endswith("_bytes") else "count"
    return Comparison(quantity, unit, value, predicted, low, high, agrees, basis)


def _capacity(observed: Observed, scenario: Scenario, given: Plan, pool: Reading) -> Iterator[Comparison]:
    """Blocks, tokens and concurrency, from the pool as printed: both ends of its rounding are planned."""
    value, half = pool.number, pool.resolution / 2
    low, high = (plan(replace(scenario, kv_pool_bytes=max(1, int(value + sign * half)))).capacity for sign in (-1, 1))
    quantities = {
        "num_gpu_blocks": "num_blocks",
        "kv_tokens": "kv_tokens",
        "max_total_num_tokens": "kv_tokens",
        "max_concurrency": "max_concurrency",
        "block_size": "block_size",
    }
    for quantity, attribute in quantities.items():
        reading = observed.least(quantity)
        if reading:
            ends = (float(getattr(low, attribute)), float(getattr(high, attribute)))
            yield _compared(
                quantity, reading, float(getattr(given.capacity, attribute)), *ends, "the engine's rule, the pool as printed"
            )
    yield from _needed(observed, scenario, given)


def _needed(observed: Observed, scenario: Scenario, given: Plan) -> Iterator[Comparison]:
    """What a start-up error states: the pool that one session needs, and the length that would fit."""
    needed = observed.first("needed_kv_bytes")
    if needed:
        size = given.layout.needed_bytes(given.deployment.max_model_len)
        yield _compared("needed_kv_bytes", needed, size, size, size, "one session of the maximum length")
    longest = observed.first("estimated_max_model_len")
    if longest:
        length = given.max_context_tokens
        yield _compared("estimated_max_model_len", longest, length, length * 0.99, length * 1.01, "the pool as printed")
