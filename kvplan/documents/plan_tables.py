"""One plan as tables, one table for each question: what `kvplan fit` shows and `kvplan report` shows again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvplan.budget import Budget
from kvplan.documents._columns import table
from kvplan.model import session_bytes
from kvplan.parallel import Parallelism
from kvplan.plan import Plan
from kvplan.remedies import Remedy
from kvplan.table import Column, Quantity, Table
from kvplan.units import format_bytes, format_seconds, format_significant, format_tokens


def spread(parallel: Parallelism) -> str:
    """How a model lies on its GPUs: `TP 8`, `DP 8 EP 8`, or one rank."""
    axes = {"TP": parallel.tp, "PP": parallel.pp, "DP": parallel.dp, "DCP": parallel.dcp, "EP": parallel.ep}
    return " ".join(f"{name} {size}" for name, size in axes.items() if size > 1) or "one rank"


def setting(p: Plan) -> str:
    """Where a plan runs: `8 x h200 (TP 8), sglang 0.5`."""
    d = p.deployment
    version = d.version or p.engine.default_version
    return f"{d.parallel.gpus} x {d.gpu.name} ({spread(d.parallel)}), {p.engine.name} {version}"


def length(p: Plan) -> str:
    """The maximum length as people write it: `32k tokens`."""
    return f"{format_tokens(p.deployment.max_model_len)} tokens"


def verdict(p: Plan) -> str:
    """What a plan comes to, as the end of a sentence about its model."""
    if not p.fits:
        return f"does not fit at {length(p)}; {format_bytes(p.shortfall_bytes)} short on each GPU"
    replicas = f" on each of {p.deployment.parallel.dp} replicas" if p.deployment.parallel.dp > 1 else ""
    speed = f", decoding {format_significant(p.tokens_per_s)} tokens/s in all" if p.tokens_per_s else ""
    return f"{p.max_batch:,} sessions of {length(p)} at once{replicas}{speed}"


def without_remedy(p: Plan, changes: Sequence[Remedy]) -> str:
    """A sentence for what does not fit and for which nothing was found."""
    return "" if p.fits or changes else " No single change that was tried makes it fit."


def limit(p: Plan) -> str:
    """What ends the number of sessions."""
    return "max_num_seqs" if p.max_batch == p.layout.max_num_seqs else "the pool"


def capacity(p: Plan) -> Table:
    """Pool, blocks, tokens, sessions, lengths and speed, each with what explains it."""
    c, dp, needed = p.capacity, p.deployment.parallel.dp, p.layout.needed_bytes(p.deployment.max_model_len)
    rows: list[tuple[str, Quantity, str]] = [
        ("KV pool", Quantity(p.budget.kv_pool_bytes, "bytes"), _range(p.budget)),
        ("Least pool to start", Quantity(needed, "bytes"), f"at {length(p)}"),
        ("KV dtype", Quantity(p.layout.kv_dtype, "text"), _dtype_remark(p)),
        ("Tokens per block", Quantity(c.block_size, "count"), f"{p.layout.bytes_per_block:,} B over all layers"),
        ("Blocks", Quantity(c.num_blocks, "count"), ""),
        ("Tokens in the pool", Quantity(c.kv_tokens, "count"), "as the engine prints it"),
        ("Max concurrency", Quantity(c.max_concurrency, "ratio"), f"as printed, at {length(p)}"),
        ("Sessions at once", Quantity(p.max_batch, "count"), f"limited by {limit(p)}"),
        ("Longest session", Quantity(p.max_context_tokens, "tokens"), "alone in the pool, within the maximum length"),
        ("A session, reserved", Quantity(p.session_bytes_reserved, "bytes"), f"{p.session_bytes_reserved:,} B"),
        ("A session, logical", Quantity(p.session_bytes_logical, "bytes"), f"{p.session_bytes_logical:,} B"),
        *_speed(p),
    ]
    columns = (Column("figure", "Figure"), Column("value", "Value"), Column("remark", "Remark"))
    return Table("Capacity of each replica" if dp > 1 else "Capacity", columns, [(f, v, r or None) for f, v, r in rows])


def _dtype_remark(p: Plan) -> str:
    return "as the engine chooses" if p.deployment.kv_dtype == "auto" else "as asked"


def longest_sessions(p: Plan) -> list[tuple[int, int]]:
    """(sessions, tokens): how long that many can be, from the most that run at full length upwards, by doubling."""
    found: list[tuple[int, int]] = []
    count = 1
    while count * 2 <= p.max_batch:
        count *= 2
    while p.fits and count <= p.layout.max_num_seqs and len(found) < 6:
        tokens = p.layout.max_context(p.budget.kv_pool_bytes, count)
        if not tokens:
            break
        found.append((count, tokens))
        count *= 2
    return found


def how_long(p: Plan) -> Iterator[Table]:
    """The longest context at which N sessions fit; nothing where only one count was found."""
    rows = longest_sessions(p)
    if len(rows) > 1:
        columns = (Column("sessions", "Sessions", "count"), Column("max_context_tokens", "Longest each", "count"))
        yield Table("How long more sessions can be", columns, rows, caption="Tokens of each, all running at once.")


def _range(budget: Budget) -> str:
    if budget.given_pool_bytes is not None:
        return "given"
    if not budget.kv_pool_bytes:
        return "nothing remains"
    low, high = budget.kv_pool_range
    return f"{format_bytes(low)} to {format_bytes(high)}" if low < high else "no line is estimated"


def _speed(p: Plan) -> Iterator[tuple[str, Quantity, str]]:
    if p.step:
        low, high = format_seconds(p.step.low_seconds), format_seconds(p.step.high_seconds)
        each = format_significant(1 / p.step.seconds)
        yield "Decode step", Quantity(p.step.seconds, "s"), f"{low} to {high}, bound by {p.step.bound}"
        yield "Decode speed", Quantity(p.tokens_per_s, "tokens_per_s"), f"batch {p.batch:,}, {each} tokens/s each"


def budget(p: Plan) -> Iterator[Table]:
    """One GPU's memory line by line; nothing where the pool was given."""
    b, low, high = p.budget, *p.budget.kv_pool_range
    if b.given_pool_bytes is not None:
        return
    origin = "estimate" if any(line.origin == "estimate" for line in b.lines) else "exact"
    rows: list[tuple[Any, ...]] = [
        ("GPU total", b.gpu_total_bytes, None, None, "measured", "as the driver reports it"),
        ("requested", b.requested_bytes, None, None, "exact", b.request_rule),
        *((f"- {x.label}", x.bytes, x.low_bytes, x.high_bytes, x.origin, x.rule) for x in b.lines),
        ("= KV pool", b.remainder_bytes, low, high, origin, "what remains")
        if b.remainder_bytes >= 0
        else ("= missing", b.remainder_bytes, None, None, origin, "more than was requested"),
        *((f"beside: {x.label}", x.bytes, x.low_bytes, x.high_bytes, x.origin, x.rule) for x in b.beside),
    ]
    columns = (
        Column("label", "Line"),
        Column("bytes", "Size", "bytes"),
        Column("low_bytes", "Low", "bytes"),
        Column("high_bytes", "High", "bytes"),
        Column("origin", "Origin"),
        Column("rule", "Rule"),
    )
    yield Table("Memory of one GPU", columns, rows)


def at_contexts(plans: Sequence[Plan], title: str) -> Table:
    """The same plan with each maximum length; sessions and speed of all replicas."""
    columns = (
        Column("context", "Context", "tokens"),
        Column("batch", "Sessions", "count"),
        Column("max_concurrency", "Concurrency", "ratio"),
        Column("session_bytes_reserved", "Reserved each", "bytes"),
        Column("step_s", "Decode step", "s"),
        Column("tokens_per_s", "Decode", "tokens_per_s"),
    )
    rows = [
        (
            p.deployment.max_model_len, p.batch, p.capacity.max_concurrency, p.session_bytes_reserved,
            p.step.seconds if p.step else None, p.tokens_per_s,
        )
        for p in plans
    ]  # fmt: skip
    return table(title, columns, rows)


def waste(p: Plan) -> Table:
    """What a session reserves beyond what it needs, and what other ranks hold as well."""
    reserved, logical, copied = p.session_bytes_reserved, p.session_bytes_logical, _copied_bytes(p)
    rows = [
        ("pages, groups and padding", reserved - logical, (reserved - logical) / reserved if reserved else None),
        ("copies of what other ranks hold", copied, copied / reserved if reserved else None),
    ]
    columns = (Column("cause", "Cause"), Column("bytes", "On each GPU", "bytes"), Column("share", "Share", "percent"))
    return Table(f"What a session of {length(p)} wastes", columns, rows)


def _copied_bytes(p: Plan) -> int:
    """Bytes on this rank beyond its fair share of one copy."""
    d = p.deployment
    whole = int(session_bytes(d.spec, d.max_model_len, p.layout.kv_format, Parallelism(pp=d.parallel.pp)))
    return max(0, p.session_bytes_logical - -(-whole // d.parallel.tp))


def remedies(changes: Sequence[Remedy]) -> Iterator[Table]:
    """Changes that make it fit; nothing where there are none."""
    if changes:
        columns = (Column("change", "Change"), Column("max_batch", "Sessions then", "count"))
        yield Table("What would make it fit, cheapest first", columns, [(r.change, r.max_batch) for r in changes])
