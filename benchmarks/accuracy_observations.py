"""The memory budget against what engines printed: a section of docs/accuracy.md (benchmarks/accuracy.py writes it).

Every row of observations.yaml is asked of kvplan as far as it states enough; rows that do not are listed with their
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.observed_checks import (
    CapacityCheck,
    PoolCheck,
    Rate,
    Weights,
    capacity,
    pool,
    pool_gap,
    rate,
    weights,
)  # fmt: skip
from benchmarks.observed_models import miss
from benchmarks.observed_rows import Row, read_rows
from kvplan.units import GIB

FITTED_ON = "llmd-205-"
"""Rows whose lines the estimates of libraries and CUDA graphs were fitted to: one H100 machine, vLLM 0.19."""
SEEN = (
    "vllm-10517-", "sparkdocker-396-", "file-57976227484-", "file-60894650985-", "file-63396953296-",
    "file-63302897442-", "club3090-104-", "club3090-127-", "vllm-51041-",
)  # fmt: skip
"""Rows that a rule's docstring leans on: V0 forward passes, unified memory, few graphs, eager collectives, hybrids."""


@dataclass(frozen=True, slots=True)
class Checks:
    """All checks of all rows."""

    rows: Sequence[Row]
    rates: Sequence[Rate]
    capacities: Sequence[CapacityCheck]
    pools: Sequence[PoolCheck]
    weights: Sequence[Weights]


def check(folder: Path) -> Checks:
    """Ask kvplan every row."""
    rows = read_rows(folder)
    return Checks(rows, *(_all(rows, f) for f in (rate, capacity, pool, weights)))


def _all(rows: Iterable[Row], of: Callable[[Row], Any]) -> list[Any]:
    return [found for row in rows if (found := of(row)) is not None]


def share(flags: Iterable[bool]) -> float:
    """The share that holds."""
    known = list(flags)
    return sum(known) / len(known)


def summary(checks: Checks) -> Iterator[tuple[str, int, str, str]]:
    """(claim, rows, reached, wanted)."""
    equal = sum(r.agrees for r in checks.rates)
    yield "bytes per token equal, rows confirmed as exact", len(checks.rates), f"{equal}", "all"
    yield (
        "tokens, blocks, concurrency of the printed pool within 0.2 %",
        len(checks.capacities),
        _met(checks.capacities, 0.002),
        "90 %",
    )
    pools = [abs(p.error) for p in checks.pools]
    yield "predicted pool: median error", len(pools), f"{median(pools):.1%}", "2 %"
    yield "predicted pool within 6 %", len(pools), _met(checks.pools, 0.06), "90 %"
    inside = sum(p.inside for p in checks.pools)
    yield "printed pool inside the stated range", len(pools), f"{inside} ({inside / len(pools):.0%})", "85 %"
    yield "width of that range over the pool, median", len(pools), f"{median(p.width for p in checks.pools):.1%}", ""
    yield "weights: median error", len(checks.weights), f"{median(abs(w.error) for w in checks.weights):.1%}", "1 %"


def _met(found: Sequence[Any], limit: float) -> str:
    met = sum(abs(f.error) <= limit for f in found)
    return f"{met} ({met / len(found):.0%})"


def section(folder: Path) -> str:
    """Markdown."""
    return "\n".join(_lines(check(folder)))


def _lines(checks: Checks) -> Iterator[str]:
    yield "## Memory budget against what engines printed"
    yield ""
    yield f"{len(checks.rows)} start-up logs from public threads; each is asked of kvplan as far as it states enough."
    yield ""
    yield from _table(("claim", "rows", "reached", "wanted"), summary(checks))
    yield ""
    yield from _held_out(checks)
    yield from _rates(checks.rates)
    yield from _capacities(checks.capacities)
    yield from _pools(checks.pools)
    yield from _budget_lines(checks)
    yield from _left_out(checks)


def _table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def _held_out(checks: Checks) -> Iterator[str]:
    """How the rules do on what they were fitted to, and on all else."""
    yield "The activation peak follows from vLLM's source, but for two constants, the widths of hidden states."
    yield "Libraries, collectives and CUDA graphs were fitted to the ledgers of one pull request (vLLM 0.19 on H100);"
    yield "a few other rows each decided one constant, and the rule names them. All else is held out."
    yield ""
    kinds = {"fitted on": (FITTED_ON,), "decided one constant": SEEN}
    groups = {kind: [p for p in checks.pools if p.row.row_id.startswith(ids)] for kind, ids in kinds.items()}
    groups["held out"] = [p for p in checks.pools if not p.row.row_id.startswith((FITTED_ON, *SEEN))]
    yield from _table(
        ("rows", "number", "median error of the pool", "within 6 %", "inside the range", "median width"),
        (_pool_row(kind, pools) for kind, pools in groups.items()),
    )
    yield ""
    yield "Leaving out one model at a time and taking the others' mean for its libraries and collectives would move"
    yield f"a pool by at most {leave_one_out(groups['fitted on']):.2f} GiB: no row carries the fit."
    yield ""


def leave_one_out(pools: Iterable[PoolCheck]) -> float:
    """The largest distance, in GiB, between the constant of non-torch memory and what the other models would say."""
    printed = [(p.row.get("model"), p.line("non_torch"), p.row.get("non_torch_gib")) for p in pools]
    moved = [0.0]
    for model, line, _ in printed:
        others = [value for other, like, value in printed if other != model and like.rule == line.rule and value]
        if others:
            moved.append(abs(fmean(others) - line.bytes / GIB))
    return max(moved)


def _pool_row(name: str, pools: Sequence[PoolCheck]) -> tuple[str, ...]:
    errors = [abs(p.error) for p in pools]
    return (
        name, str(len(pools)), f"{median(errors):.1%}", f"{share(e <= 0.06 for e in errors):.0%}",
        f"{share(p.inside for p in pools):.0%}", f"{median(p.width for p in pools):.1%}",
    )  # fmt: skip


def _rates(rates: Sequence[Rate]) -> Iterator[str]:
    yield "### Bytes per token"
    yield ""
    yield "Rows whose bytes per token the collectors confirmed to the rounding of the print; kvplan's must be equal."
    yield ""
    count = Counter(r.row.get("engine") for r in rates)
    equal = Counter(r.row.get("engine") for r in rates if r.agrees)
    yield from _table(("engine", "rows", "equal"), ((e, n, equal[e]) for e, n in sorted(count.items())))
    yield ""
    for r in rates:
        if not r.agrees:
            found = f"{float(r.found):,.0f} B" if r.found is not None else f"refused: {r.reason}"
            yield f"- {r.row.row_id}: {r.expected:,} B; {found}"
    yield ""


def _capacities(checks: Sequence[CapacityCheck]) -> Iterator[str]:
    yield "### Tokens, blocks and concurrency of the printed pool"
    yield ""
    yield "The pool as printed, to its rounding, through the layout of the release, or of those that a row may be of."
    yield ""
    count = Counter(c.row.get("engine") for c in checks)
    met = Counter(c.row.get("engine") for c in checks if c.error <= 0.002)
    yield from _table(("engine", "rows", "within 0.2 %"), ((e, n, met[e]) for e, n in sorted(count.items())))
    yield ""
    yield from _table(
        ("missed", "release", "printed", "kvplan", "why"),
        (
            (c.row.row_id, c.release, _figures(c, "printed"), _figures(c, "found"), capacity_reason(c.row))
            for c in checks
            if c.error > 0.002
        ),
    )
    yield ""


def _figures(c: CapacityCheck, field: str) -> str:
    return ", ".join(f"{getattr(f, field):,.2f} {f.name}".replace(".00 ", " ") for f in c.figures) or "refused"


def capacity_reason(row: Row) -> str:
    """The cause in words, and what the row would be with fields that it leaves open."""
    known = miss("capacity", row.row_id)
    texts = [known["why"]] if "why" in known else []
    if "assume" in known:
        again = capacity(Row({**row.raw, **known["assume"]}, row.model))
        flags = ", ".join(f"{k} {v}" for k, v in known["assume"].items())
        texts.append(f"with {flags}, not stated: {_figures(again, 'found')}" if again else "")
    return "; ".join(texts)


def _pools(pools: Sequence[PoolCheck]) -> Iterator[str]:
    yield "### The pool without it"
    yield ""
    yield "Rows that state release, model, GPU memory, fraction and ranks. GiB of one GPU; of several ranks the fewest."
    yield ""
    yield from _table(
        ("row", "release", "model", "tp", "printed", "kvplan", "error", "range", "inside"), map(_pool_line, pools)
    )
    yield ""
    for p in pools:
        if abs(p.error) > 0.06 or not p.inside:
            yield f"- {p.row.row_id} ({p.error:+.1%}): {miss('pool', p.row.row_id).get('why', '')}"
    yield ""


def _pool_line(p: PoolCheck) -> tuple[str, ...]:
    low, high = p.budget.kv_pool_range
    return (
        p.row.row_id, p.release, p.row.get("model") or "", str(p.row.get("tp") or ""), f"{p.printed_bytes / GIB:.2f}",
        f"{p.budget.kv_pool_bytes / GIB:.2f}", f"{p.error:+.1%}", f"{low / GIB:.2f} to {high / GIB:.2f}",
        "yes" if p.inside else "no",
    )  # fmt: skip


def _budget_lines(checks: Checks) -> Iterator[str]:
    """Each line of the budget where a row prints it."""
    yield "### Lines of the budget"
    yield ""
    fields = (("activation", "activation_peak_gib"), ("non_torch", "non_torch_gib"), ("cuda_graphs", "cuda_graph_gib"))
    yield from _table(
        ("line", "rows", "median error, GiB", "nine in ten within, GiB", "inside the line's range"),
        (
            _line_row(label, [(p, p.row.get(field)) for p in checks.pools if p.row.get(field) is not None])
            for label, field in fields
        ),
    )
    yield ""
    yield "Weights further than 2 % off:"
    yield ""
    yield from _table(
        ("row", "model", "tp", "printed, GiB", "kvplan, GiB", "error"),
        (
            (
                w.row.row_id,
                w.row.get("model") or "",
                w.row.get("tp") or "",
                w.printed_gib,
                f"{w.found_bytes / GIB:.2f}",
                f"{w.error:+.1%}",
            )
            for w in checks.weights
            if abs(w.error) > 0.02
        ),
    )
    yield ""


def _line_row(label: str, printed: Sequence[tuple[PoolCheck, float]]) -> tuple[str, ...]:
    lines = [(p.line(label), value) for p, value in printed]
    errors = sorted(abs(line.bytes / GIB - value) for line, value in lines)
    inside = share(line.low_bytes / GIB - 0.005 <= value <= line.high_bytes / GIB + 0.005 for line, value in lines)
    return (
        label,
        str(len(lines)),
        f"{median(errors):.2f}",
        f"{errors[int(0.9 * (len(errors) - 1))]:.2f}",
        f"{inside:.0%}",
    )


def _left_out(checks: Checks) -> Iterator[str]:
    """Rows that kvplan is asked nothing of."""
    yield "### Rows left out"
    yield ""
    yield from _table(("reason", "rows"), ((why, ", ".join(ids)) for why, ids in sorted(left_out(checks.rows).items())))
    yield ""
    yield "No budget, for the first thing that a row lacks:"
    yield ""
    yield from _table(("lacks", "rows"), Counter(filter(None, map(pool_gap, checks.rows))).most_common())


def left_out(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Reason -> ids of rows whose model or engine is not known."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.engine is None:
            reasons.setdefault(f"{row.get('engine')} has rules of its own", []).append(row.row_id)
        elif row.model is None:
            words = row.get("model")
            why = "the row names a family or a shape of several models" if words else "the row names no model"
            reasons.setdefault(why, []).append(row.row_id)
    return reasons
