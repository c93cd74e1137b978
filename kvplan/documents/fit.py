"""The answer of `kvplan fit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvplan import __version__
from kvplan.budget import Budget, Line
from kvplan.plan import Plan, at_context, plan
from kvplan.remedies import Remedy, remedies, smallest_gpus
from kvplan.table import Column, Document, Table
from kvplan.units import format_bytes, format_tokens


def scenario_payload(p: Plan) -> dict[str, Any]:
    """Every input, resolved."""
    d, parallel = p.deployment, p.deployment.parallel
    return {
        "model": d.spec.name,
        "gpu": d.gpu.name,
        "gpus": parallel.gpus,
        "engine": p.engine.name,
        "engine_version": d.version or p.engine.default_version,
        "tp": parallel.tp,
        "pp": parallel.pp,
        "dp": parallel.dp,
        "dcp": parallel.dcp,
        "ep": parallel.ep,
        "context": d.max_model_len,
        "kv_dtype": p.layout.kv_dtype,
        "kv_pool_bytes": p.scenario.kv_pool_bytes,
        "gpu_memory_utilization": d.memory_fraction,
        "max_num_seqs": p.layout.max_num_seqs,
        "max_num_batched_tokens": p.layout.max_num_batched_tokens,
        "block_size": p.capacity.block_size,
        "engine_args": dict(d.engine_args),
    }


def _line_payload(line: Line) -> dict[str, Any]:
    return {
        "label": line.label,
        "bytes": line.bytes,
        "low_bytes": line.low_bytes,
        "high_bytes": line.high_bytes,
        "origin": line.origin,
        "rule": line.rule,
    }


def budget_payload(budget: Budget, shortfall_bytes: int) -> dict[str, Any]:
    """The `budget` object of the JSON contract."""
    low, high = budget.kv_pool_range
    return {
        "gpu_total_bytes": budget.gpu_total_bytes,
        "requested_bytes": budget.requested_bytes,
        "lines": [_line_payload(line) for line in budget.lines],
        "beside": [_line_payload(line) for line in budget.beside],
        "kv_pool_bytes": budget.kv_pool_bytes,
        "kv_pool_low_bytes": low,
        "kv_pool_high_bytes": high,
        "shortfall_bytes": shortfall_bytes,
    }


def payload(p: Plan) -> dict[str, Any]:
    """One result, as `fit --format json` and each element of `sweep` carry it."""
    return {
        "scenario": scenario_payload(p),
        "budget": budget_payload(p.budget, p.shortfall_bytes),
        "capacity": {
            "block_size": p.capacity.block_size,
            "num_blocks": p.capacity.num_blocks,
            "kv_tokens": p.capacity.kv_tokens,
            "max_concurrency": p.capacity.max_concurrency,
            "max_batch": p.max_batch,
            "max_context_tokens": p.max_context_tokens,
            "session_bytes_reserved": p.session_bytes_reserved,
            "session_bytes_logical": p.session_bytes_logical,
        },
        "cache": {
            "bytes_per_token_per_rank": p.bytes_per_token_per_rank,
            "fixed_bytes_per_session_per_rank": p.fixed_bytes_per_session_per_rank,
            "bytes_per_block": p.layout.bytes_per_block,
        },
        "decode": p.step
        and {
            "batch": p.batch,
            "step_s": p.step.seconds,
            "step_low_s": p.step.low_seconds,
            "step_high_s": p.step.high_seconds,
            "tokens_per_s": p.batch / p.step.seconds,
            "bound": p.step.bound,
        },
        "notes": list(p.notes),
        "flags": {p.engine.name: p.engine.flags(p.deployment, p.max_batch)},
    }


def answer(p: Plan, contexts: Sequence[int]) -> Document:
    """Budget, capacity and what would change them, for one plan."""
    changes = remedies(p) if not p.fits else ()
    fewest = smallest_gpus(p) if p.scenario.kv_pool_bytes is None else None
    body = {"command": "fit", "version": __version__, **payload(p)}
    body["remedies"] = [{"change": r.change, "max_batch": r.max_batch} for r in changes]
    body["smallest_gpus"] = fewest
    tables = [_capacity(p), *_budget(p), *_contexts(p, contexts), *_waste(p), *_remedies(changes)]
    return Document(command="fit", lead=_lead(p, fewest), tables=tables, payload=body, notes=[*p.notes, *_flags(p)])


def _lead(p: Plan, fewest: int | None) -> str:
    d, parallel = p.deployment, p.deployment.parallel
    where = f"{d.spec.name} on {parallel.gpus} x {d.gpu.name}, {p.engine.name} {d.version or p.engine.default_version}"
    length = format_tokens(d.max_model_len)
    if not p.fits:
        return f"{where}: does not fit at {length} tokens; {format_bytes(p.shortfall_bytes)} short on each GPU."
    replicas = f" on each of {parallel.dp} replicas" if parallel.dp > 1 else ""
    least = f" The smallest such group of GPUs that starts is {fewest}." if fewest else ""
    return f"{where}: {p.max_batch:,} sessions of {length} tokens at once{replicas}.{least}"


def _capacity(p: Plan) -> Table:
    c = p.capacity
    rows = [
        ("KV pool", format_bytes(p.budget.kv_pool_bytes), _range(p.budget)),
        ("block size", f"{c.block_size:,} tokens", f"{p.layout.bytes_per_block:,} B over all layers"),
        ("blocks", f"{c.num_blocks:,}", ""),
        ("KV cache size", f"{c.kv_tokens:,} tokens", "as the engine prints it"),
        ("max concurrency", f"{c.max_concurrency:.2f}x", f"at {format_tokens(p.deployment.max_model_len)} tokens"),
        ("sessions at once", f"{p.max_batch:,}", _binding(p)),
        ("longest context", f"{p.max_context_tokens:,} tokens", "one session alone"),
        ("session, reserved", format_bytes(p.session_bytes_reserved), f"{p.session_bytes_reserved:,} B"),
        ("session, logical", format_bytes(p.session_bytes_logical), f"{p.session_bytes_logical:,} B"),
        *_speed(p),
    ]
    columns = (Column("figure", "figure"), Column("value", "value"), Column("remark", "remark"))
    return Table(title="Capacity of one rank", columns=columns, rows=rows)


def _range(budget: Budget) -> str:
    low, high = budget.kv_pool_range
    return "given" if budget.given_pool_bytes is not None else f"{format_bytes(low)} to {format_bytes(high)}"


def _binding(p: Plan) -> str:
    return "bound by max_num_seqs" if p.max_batch == p.layout.max_num_seqs else "bound by the pool"


def _speed(p: Plan) -> Iterator[tuple[str, str, str]]:
    if p.step:
        rate, step = p.batch / p.step.seconds, p.step
        band = f"{step.low_seconds * 1e3:.1f} to {step.high_seconds * 1e3:.1f} ms, {step.bound}-bound"
        yield "decode step", f"{step.seconds * 1e3:.1f} ms", band
        yield "decode speed", f"{rate:,.0f} tokens/s", f"at batch {p.batch:,}"


def _budget(p: Plan) -> Iterator[Table]:
    budget = p.budget
    if budget.given_pool_bytes is not None:
        return
    low, high = budget.kv_pool_range
    rows: list[tuple[Any, ...]] = [
        ("GPU total", budget.gpu_total_bytes, None, None, "measured", "as the driver reports it"),
        ("requested", budget.requested_bytes, None, None, "exact", budget.request_rule),
    ]
    rows += [(f"- {x.label}", x.bytes, x.low_bytes, x.high_bytes, x.origin, x.rule) for x in budget.lines]
    rows.append(("= KV pool", budget.remainder_bytes, low, high, "estimate", "what remains"))
    rows += [(f"beside: {x.label}", x.bytes, x.low_bytes, x.high_bytes, x.origin, x.rule) for x in budget.beside]
    yield Table(
        title="Memory of one GPU",
        columns=(
            Column("label", "line"),
            Column("bytes", "size", "bytes"),
            Column("low_bytes", "low", "bytes"),
            Column("high_bytes", "high", "bytes"),
            Column("origin", "origin"),
            Column("rule", "rule"),
        ),
        rows=rows,
    )


def _contexts(p: Plan, contexts: Sequence[int]) -> Iterator[Table]:
    """Sessions at other lengths, under the same pool."""
    others = [at_context(p.scenario, n) for n in contexts]
    if not others:
        return
    plans = [plan(s) for s in others]
    yield Table(
        title="Sessions at other context lengths",
        columns=(
            Column("context", "context", "tokens"),
            Column("max_batch", "sessions", "count"),
            Column("max_concurrency", "concurrency", "ratio"),
            Column("session_bytes_reserved", "reserved each", "bytes"),
        ),
        rows=[
            (q.deployment.max_model_len, q.max_batch, q.capacity.max_concurrency, q.session_bytes_reserved)
            for q in plans
        ],
    )


def _waste(p: Plan) -> Iterator[Table]:
    """What a session reserves beyond what it needs, and copies over ranks."""
    reserved, logical = p.session_bytes_reserved, p.session_bytes_logical
    rows: list[tuple[str, int, float | None]] = [
        ("pages, groups and padding", reserved - logical, (reserved - logical) / reserved if reserved else None)
    ]
    copied = _copied_bytes(p)
    rows.append(("copies over tensor-parallel ranks", copied, copied / logical if logical else 0.0))
    yield Table(
        title="What a session of full length wastes",
        columns=(Column("cause", "cause"), Column("bytes", "size", "bytes"), Column("share", "share", "percent")),
        rows=rows,
    )


def _copied_bytes(p: Plan) -> int:
    """Bytes on this rank that another rank holds too, as a share of one copy."""
    from kvplan.model import session_bytes
    from kvplan.parallel import Parallelism

    parallel, d = p.deployment.parallel, p.deployment
    alone = Parallelism(pp=parallel.pp)
    whole = int(session_bytes(d.spec, d.max_model_len, p.layout.kv_format, alone))
    return max(0, p.session_bytes_logical - -(-whole // parallel.tp))


def _remedies(changes: Sequence[Remedy]) -> Iterator[Table]:
    if changes:
        yield Table(
            title="What would make it fit, cheapest first",
            columns=(Column("change", "change"), Column("max_batch", "sessions then", "count")),
            rows=[(r.change, r.max_batch) for r in changes],
        )


def _flags(p: Plan) -> Iterator[str]:
    yield f"flags: {p.engine.flags(p.deployment, p.max_batch)}"
