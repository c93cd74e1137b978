"""The answer of `kvplan validate`: what was predicted beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kvplan import __version__
from kvplan.table import Column, Document, Figure, Table
from kvplan.units import format_rate
from kvplan.validate.result import BF16_BOUND, LEVELS, DecodeRow, MemoryCheck, NumericCheck, Validation

if TYPE_CHECKING:
    from pathlib import Path

    from kvplan.formats.plot import Roofline

_MOST_POINTS = 8


def answer(result: Validation, earlier: Mapping[str, Any] | None = None) -> Document:
    """Tables for people, the JSON contract for programs. `earlier`: the payload of a run to set beside this one."""
    held_out = [row for row in result.decode if row.held_out]
    tables = [*numbers(result.numerics), memory(result.memory)]
    if held_out:
        tables += [prediction(result), decode(held_out)]
    if result.comparisons:
        tables.append(kinds(result))
    if earlier is not None:
        tables.append(side_by_side(held_out, earlier))
    return Document(
        command="validate",
        tables=tables,
        payload={**result.payload(), "version": __version__},
        lead=lead(result),
        notes=list(notes(result)),
        figures=_figures(result),
    )


def deliver(
    result: Validation,
    earlier: Mapping[str, Any] | None,
    *,
    save: Path | None,
    plot: Path | None,
    format: str | None,  # noqa: A002
    output: Path | None,
) -> None:
    """Keep the run, show it, draw it: each file is there whole or not at all."""
    from kvplan.formats import write
    from kvplan.formats.plot import save as save_plot
    from kvplan.validate.result import save as save_run

    if save:
        save_run(result, save)
    write(answer(result, earlier), format, output)
    chart = roofline(result) if plot else None
    if plot and chart:
        save_plot(chart, plot)


def lead(result: Validation) -> str:
    """One paragraph: does the plan hold on this machine?"""
    held = sum(c.ok for c in result.numerics), sum(c.ok for c in result.memory)
    text = (
        f"{result.machine.get('name', result.device)}: {held[0]} of {len(result.numerics)} numeric and "
        f"{held[1]} of {len(result.memory)} memory checks hold. "
    )
    if not result.errors("probe"):
        return text.strip()
    if not result.valid:
        return text + "The timings are not valid: the machine was busy with something else."
    found = result.summary("probe")
    verdict = "as promised" if result.prediction_holds else "worse than promised"
    return text + (
        f"Decode times at {len(result.errors('probe'))} shapes that it had not seen were predicted with a median error "
        f"of {found['median_error']:.1%}, {found['within_20']:.0%} of them within 20 %: {verdict}."
    )


def notes(result: Validation) -> Iterator[str]:
    """Why timings are invalid, and how to read the columns."""
    yield from (f"Timings invalid: {reason}." for reason in result.reasons)
    yield from result.notes
    if result.decode and result.device == "cpu":
        yield "CPU times are CPU seconds of one thread."
        yield "A CPU's datasheet level counts arithmetic alone: how many memory channels are fitted cannot be seen."
    if result.decode:
        yield "Errors are predicted / measured - 1, on shapes that no prediction has seen; probes stand in the JSON."


def _verdict(ok: bool) -> str:
    return "pass" if ok else "fail"


def numbers(checks: Sequence[NumericCheck]) -> list[Table]:
    """Each error beside its bound: claims about MLA's algebra, then kernels."""
    columns = (
        Column("id", "check"),
        Column("what", "what must hold"),
        Column("error", "error"),
        Column("bound", "bound"),
        Column("ok", "", "verdict"),
    )
    kernels = [c for c in checks if c.bound == BF16_BOUND]
    claims = [c for c in checks if c not in kernels]
    tables = []
    if claims:
        rows = [(c.id, c.what, f"{c.error:.1e}", f"{c.bound:.0e}", _verdict(c.ok)) for c in claims]
        tables.append(Table("Numbers", columns, rows, "float64, from real tensors; errors are absolute."))
    if kernels:
        errors = [(c.id, f"{c.error:.1e}", f"{c.bound:.0e}", _verdict(c.ok)) for c in kernels]
        caption = "bf16 kernels, as a share of the largest output; slots that must not be read hold NaN."
        tables.append(Table("Kernels against float64", (columns[0], *columns[2:]), errors, caption))
    return tables


def memory(checks: Sequence[MemoryCheck]) -> Table:
    """One line per cache; every count of it must agree."""
    columns = (
        Column("id", "cache"),
        Column("predicted_bytes", "planned", "exact_bytes"),
        Column("measured_bytes", "stored", "exact_bytes"),
        Column("counts", "counts that agree"),
        Column("ok", "", "verdict"),
    )
    rows = []
    for name, group in groupby(checks, lambda c: c.id):
        counts = list(group)
        wrong = ", ".join(c.quantity for c in counts if not c.ok)
        agreed = ", ".join(dict.fromkeys(c.quantity.partition(" at ")[0] for c in counts))
        words = f"not {wrong}" if wrong else agreed
        rows.append((name, counts[0].predicted_bytes, counts[0].measured_bytes, words, _verdict(not wrong)))
    caption = "storage exact; process and peak within 1 %; CUDA's allocator to its rounding."
    return Table("Memory", columns, rows, caption)


def prediction(result: Validation) -> Table:
    """The three levels over all held-out shapes."""
    columns = (
        Column("level", "prediction from"),
        Column("median_error", "median error", "percent"),
        Column("within_10", "within 10 %", "percent"),
        Column("within_20", "within 20 %", "percent"),
    )
    rows = [(level, *result.summary(level).values()) for level in LEVELS]
    return Table(f"Decode time at {len(result.errors('probe'))} held-out shapes", columns, rows)


def decode(rows: Sequence[DecodeRow]) -> Table:
    """Predicted, measured, error, share of the roofline."""
    columns = (
        Column("shape", "batch x heads x context"),
        Column("kv_dtype", "KV dtype"),
        Column("kernel", "kernel"),
        Column("measured_s", "measured", "s"),
        Column("probe_s", "predicted", "s"),
        *(Column(f"{level}_error", f"error, {level}", "percent") for level in LEVELS),
        Column("bytes_per_s", "read", "bytes_per_s"),
        Column("flops_per_s", "computed", "flops_per_s"),
        Column("roofline", "of roofline", "percent"),
    )
    cells = [
        (
            shape_name(row.shape), row.shape["kv_dtype"], row.kernel, row.measured_s, row.predicted_s["probe"],
            *(row.error[level] for level in LEVELS), row.bytes_per_s, row.flops_per_s, _share(row),
        )
        for row in rows
    ]  # fmt: skip
    return Table(
        "Decode", columns, cells, "Of roofline: the datasheet's time as a share of the measured one.", index_columns=3
    )


def _share(row: DecodeRow) -> float | None:
    peak_s = row.predicted_s["datasheet"]
    return None if peak_s is None else peak_s / row.measured_s


def shape_name(shape: Mapping[str, Any]) -> str:
    """`128 x 16 x 8192`."""
    return f"{shape['batch']} x {shape['num_heads']} x {shape['context_tokens']}"


def kinds(result: Validation) -> Table:
    """Kinds of attention at equal heads, batch and context."""
    first = result.comparisons[0]
    columns = (
        Column("kind", "attention"),
        Column("cache_bytes", "cache of one layer", "bytes"),
        Column("measured_s", "step", "s"),
        Column("ratio", "times MLA absorbed", "ratio"),
    )
    rows = [(c.kind, c.cache_bytes, c.measured_s, c.measured_s / first.measured_s) for c in result.comparisons]
    title = f"One layer, {first.num_heads} heads, batch {first.batch}, {first.context_tokens:,} tokens"
    return Table(
        title, columns, rows, "MLA with its W_UK and W_UV; restored: K and V of every head computed in each step."
    )


def side_by_side(rows: Sequence[DecodeRow], earlier: Mapping[str, Any]) -> Table:
    """Shapes that both runs measured with the same kernel."""

    def key(shape: Mapping[str, Any], kernel: str) -> tuple[object, ...]:
        return (*sorted(shape.items()), kernel)

    then = [row for row in earlier.get("decode", []) if row["held_out"]]
    there = {key(row["shape"], row["kernel"]): row["measured_s"] for row in then}
    columns = (
        Column("shape", "batch x heads x context"),
        Column("kv_dtype", "KV dtype"),
        Column("kernel", "kernel"),
        Column("measured_s", "this run", "s"),
        Column("earlier_s", "earlier run", "s"),
        Column("ratio", "this / earlier", "ratio"),
    )
    cells = []
    for row in rows:
        before_s = there.get(key(row.shape, row.kernel))
        if before_s is not None:
            name = shape_name(row.shape), row.shape["kv_dtype"], row.kernel
            cells.append((*name, row.measured_s, before_s, row.measured_s / before_s))
    machine = earlier.get("machine", {}).get("name", "an earlier run")
    return Table(
        f"Beside {machine}", columns, cells, "" if cells else "No shape was measured with the same kernel in both.", 3
    )


def roofline(result: Validation) -> Roofline | None:
    """Measured points under what this device showed without attention; None where nothing was timed."""
    from kvplan.formats.plot import Roofline

    probes, held_out = result.probes.get("device"), [row for row in result.decode if row.held_out]
    if not probes or not held_out:
        return None
    bytes_per_s, flops_per_s = probes["read_bytes_per_s"], probes["gemm_flops_per_s"]
    points = [(shape_name(r.shape), r.flops_per_s / r.bytes_per_s, r.flops_per_s) for r in held_out[:_MOST_POINTS]]
    return Roofline(
        title=f"MLA decode on {result.machine.get('name', result.device)}",
        bytes_per_s=bytes_per_s,
        flops_per_s=flops_per_s,
        points=points,
        caption=(
            f"batch x heads x context; the roof is this device's own read rate, {format_rate(bytes_per_s, 'B/s')}, and "
            f"best bf16 product, {format_rate(flops_per_s, 'FLOP/s')}"
        ),
    )


def _figures(result: Validation) -> list[Figure]:
    from kvplan.formats.plot import figure

    chart = roofline(result)
    drawn = figure(chart) if chart else None
    return [drawn] if drawn else []
