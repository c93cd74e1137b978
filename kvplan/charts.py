"""Results as charts: which series, which axes, which words. `kvplan.formats.plot` draws them; nothing here does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from kvplan.compare import Row
from kvplan.formats.plot import Axis, LineChart, Roofline, StackedBar
from kvplan.gpu import GpuSpec
from kvplan.plan import Plan
from kvplan.roofline import Step, peak_flops
from kvplan.units import format_bytes

_CONTEXT = Axis("Context (tokens)", "tokens", is_log=True)
_SHORTEST_TOKENS = 4096
_THINNEST = 0.01
"""Share of the GPU below which what nobody asked for is no part of its own."""


def lengths(longest: int, asked: Iterable[int] = ()) -> tuple[int, ...]:
    """Contexts that show a curve: powers of two from 4k (an eighth of a short one) to `longest`, and those `asked`."""
    first = min(_SHORTEST_TOKENS, max(1, longest // 8))
    powers = (1 << exponent for exponent in range(longest.bit_length()))
    return tuple(sorted({n for n in powers if n >= first} | {longest, *asked}))


def cache(rows: Iterable[Row]) -> LineChart:
    """Bytes on one rank against context, a line per model and KV dtype; rows as `compare` yields them, of one TP."""
    lines = [(key, list(line)) for key, line in groupby(rows, lambda r: (r.model, r.kv_dtype, r.tp, r.batch))]
    several_dtypes = len({dtype for (_, dtype, _, _), _ in lines}) > 1
    (_, dtype, tp, batch), _ = lines[0]
    what = "one session" if batch == 1 else f"{batch:,} sessions"
    return LineChart(
        f"Cache of {what} against context",
        _CONTEXT,
        Axis(f"Cache on one rank at TP {tp}", "bytes", is_log=True),
        [
            (
                f"{model}, {kv_dtype}" if several_dtypes else model,
                [row.context_tokens for row in line],
                [row.batch_bytes_per_rank for row in line],
            )
            for (model, kv_dtype, _, _), line in lines
        ],
        f"Logical bytes on the fullest rank{'' if several_dtypes else f', KV in {dtype}'}. Both axes are logarithmic.",
    )


def memory(plans: Sequence[Plan]) -> StackedBar:
    """What one GPU's memory goes to, a bar per plan; a bar that passes the mark does not fit."""
    total = max(p.budget.gpu_total_bytes for p in plans)
    same = all(p.budget.gpu_total_bytes == total for p in plans)
    return StackedBar(
        "Memory of one GPU",
        Axis("Memory of one GPU", "bytes"),
        [(p.deployment.spec.name, list(_parts(p))) for p in plans],
        "Estimated lines at their centre; their ranges stand in the tables.",
        (f"{format_bytes(total)} in all", total) if same else None,
    )


def _parts(p: Plan) -> Iterable[tuple[str, float]]:
    """Lines, pool, what lies beside the request, and what nobody asked for."""
    budget = p.budget
    parts = [(line.label.replace("_", " "), line.bytes) for line in budget.lines]
    parts.append(("KV pool", budget.kv_pool_bytes))
    parts += [(line.label.replace("_", " "), line.bytes) for line in budget.beside]
    rest = budget.gpu_total_bytes - sum(size for _, size in parts)
    if rest > _THINNEST * budget.gpu_total_bytes:
        parts.append(("outside the request", rest))
    return [(label, size) for label, size in parts if size]


def sessions(series: Mapping[str, Sequence[Plan]]) -> LineChart:
    """Sessions at once against context, a line for each name; plans that hold none have no point."""
    without = [name for name, plans in series.items() if not any(p.batch for p in plans)]
    missing = f" No session of any length fits: {', '.join(without)}." if without else ""
    return LineChart(
        "Sessions at once against context",
        _CONTEXT,
        Axis("Sessions at once", is_log=True),
        [(name, [p.deployment.max_model_len for p in line], [p.batch for p in line]) for name, line in series.items()],
        f"Each context taken as the maximum length. Both axes are logarithmic.{missing}",
    )


def roofline(gpu: GpuSpec, steps: Sequence[tuple[str, Step, int]]) -> Roofline | None:
    """Decode steps of (name, step, pipeline stages) beneath the datasheet's roofs; None where those are unknown.

    A point is a whole step on one GPU: every FLOP over every byte that it reads, and FLOPs over its seconds.
    """
    if not gpu.bytes_per_s or not peak_flops(gpu) or not steps:
        return None
    return Roofline(
        f"Decode on the roofline of one {gpu.name}",
        gpu.bytes_per_s,
        peak_flops(gpu),
        [(name, step.flops / step.read_bytes, stages * step.flops / step.seconds) for name, step, stages in steps],
        "Peaks of the datasheet, dense 16 bit. A point beneath the slope is bound by memory; how far beneath shows "
        "what kernels and launches cost.",
    )
