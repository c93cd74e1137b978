"""The answer of `kvplan compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvplan import __version__
from kvplan.compare import Row, compare, crossover_tp, explain, has_mha_counterpart, resolve_dtype, variant
from kvplan.errors import Unsupported
from kvplan.model import ModelSpec
from kvplan.table import Column, Document, Table
from kvplan.units import format_tokens

DEFAULT_AGAINST = ("mha", "mqa", "gqa:8", "mla")
_VARIANTS = {"mha", "mqa", "gqa", "mla"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked. `against` names variants of the same layers (mha, mqa, gqa:N, mla) and at most one model."""

    specs: tuple[ModelSpec, ...]
    contexts: tuple[int, ...]
    tps: tuple[int, ...]
    kv_dtypes: tuple[str, ...]
    against: tuple[str, ...] = ()
    batch: int = 1
    explain: bool = False
    plot: Path | None = None

    @property
    def variants(self) -> tuple[str, ...]:
        """Alternatives of the same layers; a single model is compared with all of them unless told otherwise."""
        asked = tuple(a for a in self.against if a.partition(":")[0] in _VARIANTS)
        return asked or (DEFAULT_AGAINST if len(self.specs) == 1 and not self.against else ())

    def baseline(self) -> ModelSpec | None:
        """The model of `--against`, if one is named."""
        from kvplan.catalog import load_model

        names = [a for a in self.against if a.partition(":")[0] not in _VARIANTS]
        return load_model(names[0]) if names else None


def answer(question: Question) -> Document:
    """Tables for people, `rows` for programs."""
    baseline = question.baseline()
    rows = list(_rows(question, question.specs, baseline))
    others, notes = _alternatives(question)
    tables = [_sessions(question, rows, baseline), *_scaling(question, rows)]
    if others:
        tables.append(_same_layers(rows[0], others))
    if question.explain:
        tables += [_derivation(question, spec) for spec in question.specs]
    payload: dict[str, Any] = {"command": "compare", "version": __version__, "rows": [_plain(r) for r in rows]}
    if others:
        payload["alternatives"] = [_plain(r) for r in others]
    return Document(
        command="compare",
        tables=tables,
        payload=payload,
        notes=[*notes, *_crossings(question), *_fixed_notes(rows), "Sizes: 1 KiB = 1,024 B, 1 GiB = 2^30 B; k = 1,024 tokens."],
    )


def _plain(row: Row) -> dict[str, Any]:
    plain = asdict(row)
    if plain["saving_vs_baseline"] is None:
        del plain["saving_vs_baseline"]
    return plain


def _rows(question: Question, specs: Sequence[ModelSpec], baseline: ModelSpec | None) -> Iterator[Row]:
    return compare(
        specs,
        contexts=question.contexts,
        tps=question.tps,
        kv_dtypes=question.kv_dtypes,
        batch=question.batch,
        baseline=baseline,
    )


def _sessions(question: Question, rows: Sequence[Row], baseline: ModelSpec | None) -> Table:
    """One line per model and dtype at the first TP; contexts side by side."""
    tp = question.tps[0]
    shown = [r for r in rows if r.tp == tp]
    width = len(question.contexts)
    size = "batch_bytes_per_rank" if question.batch > 1 else "session_bytes_per_rank"
    columns = [
        Column("model", "model"),
        Column("attention", "attention"),
        Column("kv_dtype", "KV dtype"),
        Column("bytes_per_token_per_rank", "per token", "exact_bytes"),
        Column("fixed_bytes_per_session_per_rank", "fixed", "bytes"),
        *(Column(f"{size}_{n}", format_tokens(n), "bytes") for n in question.contexts),
        Column("saving_vs_mha", "vs MHA", "percent"),
    ]
    if baseline:
        columns.append(Column("saving_vs_baseline", f"vs {baseline.name}", "percent"))
    lines = [shown[i : i + width] for i in range(0, len(shown), width)]
    return Table(
        title=f"One session on one rank, TP {tp}" if question.batch == 1 else f"{question.batch} sessions on one rank, TP {tp}",
        columns=tuple(columns),
        rows=[
            (
                line[0].model, line[0].attention, line[0].kv_dtype, line[0].bytes_per_token_per_rank,
                line[-1].fixed_bytes_per_session_per_rank, *(getattr(r, size) for r in line), line[-1].saving_vs_mha,
                *((line[-1].saving_vs_baseline,) if baseline else ()),
            )
            for line in lines
        ],
        caption="Logical bytes: what the attention must keep. What an engine reserves for them: kvplan fit.",
    )  # fmt: skip


def _scaling(question: Question, rows: Sequence[Row]) -> Iterator[Table]:
    """Bytes per token on each rank as TP grows."""
    if len(question.tps) < 2:
        return
    tokens = question.contexts[0]
    found = {(r.model, r.kv_dtype, r.tp): r.bytes_per_token_per_rank for r in rows if r.context_tokens == tokens}
    yield Table(
        title="Bytes per token on each rank as tensor parallelism grows",
        columns=(
            Column("model", "model"),
            Column("kv_dtype", "KV dtype"),
            *(Column(f"tp{tp}", f"TP {tp}", "exact_bytes") for tp in question.tps),
        ),
        rows=[
            (model, dtype, *(found[model, dtype, tp] for tp in question.tps))
            for model, dtype in dict.fromkeys((m, d) for m, d, _ in found)
        ],
        caption="KV heads share out over ranks; a latent is one head, so every rank holds a copy.",
    )


def _alternatives(question: Question) -> tuple[list[Row], list[str]]:
    """The first row's model with other attention; a variant that the heads do not allow becomes a note."""
    rows: list[Row] = []
    notes: list[str] = []
    for spec in question.specs:
        for name in question.variants if has_mha_counterpart(spec) else ():
            try:
                changed = variant(spec, name)
            except Unsupported as reason:
                notes.append(f"{spec.name}: {reason}")
                continue
            own = resolve_dtype(spec, question.kv_dtypes[0])
            fmt = own if changed.attention_family == "mla" and "latent" not in own.refuses else own.plain()
            rows += compare([changed], contexts=question.contexts[-1:], tps=question.tps[:1], kv_dtypes=(fmt.name,))
    return rows, notes


def _same_layers(own: Row, others: Sequence[Row]) -> Table:
    return Table(
        title=f"The same layers with other attention, TP {own.tp}",
        columns=(
            Column("model", "model"),
            Column("kv_dtype", "KV dtype"),
            Column("bytes_per_token_per_layer", "per token, layer", "exact_bytes"),
            Column("bytes_per_token_per_rank", "per token", "exact_bytes"),
            Column("session_bytes_per_rank", format_tokens(others[0].context_tokens), "bytes"),
            Column("saving_vs_mha", "vs MHA", "percent"),
        ),
        rows=[
            (
                r.model, r.kv_dtype, r.bytes_per_token_per_layer, r.bytes_per_token_per_rank,
                r.session_bytes_per_rank, r.saving_vs_mha,
            )
            for r in others
        ],
    )  # fmt: skip


def _derivation(question: Question, spec: ModelSpec) -> Table:
    fmt = resolve_dtype(spec, question.kv_dtypes[0])
    tp, tokens = question.tps[0], question.contexts[0]
    return Table(
        title=f"{spec.name}: {fmt.name}, TP {tp}, {format_tokens(tokens)} tokens, term by term",
        columns=(
            Column("attention", "layers"),
            Column("layers", "count", "count"),
            Column("role", "tensor"),
            Column("heads_per_rank", "heads", "count"),
            Column("dim", "dim", "count"),
            Column("storage", "stored as"),
            Column("bytes_per_slot", "per slot", "exact_bytes"),
            Column("slots", "slots", "count"),
            Column("total_bytes", "total", "exact_bytes"),
        ),
        rows=[
            (
                t.attention, t.layers, t.role, t.heads_per_rank, t.dim, t.storage, t.bytes_per_slot, t.slots,
                t.total_bytes,
            )
            for t in explain(spec, fmt, tp, tokens)
        ],
        caption="total = count x per slot x slots",
    )  # fmt: skip


def _crossings(question: Question) -> Iterator[str]:
    """Where tensor parallelism turns the order of two models round."""
    fmt = question.kv_dtypes[0]
    pairs = [(a, b) for a in question.specs for b in question.specs if a is not b]
    if len(question.specs) == 1 and question.specs[0].attention_family == "mla":
        spec = question.specs[0]
        pairs = [(variant(spec, name), spec) for name in question.variants if name.startswith("gqa")]
    elif len(question.specs) == 1 and question.specs[0].attention_family in {"gqa", "mha"}:
        pairs = [(question.specs[0], variant(question.specs[0], "mla"))] if "mla" in question.variants else []
    for sharded, copied in pairs:
        tp = crossover_tp(sharded, copied, resolve_dtype(copied, fmt))
        if tp:
            yield f"From TP {tp} on, a token of {sharded.name} takes fewer bytes on each rank than one of {copied.name}."


def _fixed_notes(rows: Sequence[Row]) -> Iterator[str]:
    names = dict.fromkeys(r.model for r in rows if r.fixed_bytes_per_session_per_rank)
    if names:
        yield f"fixed: states and full windows of a session, at the longest context shown ({', '.join(names)})."
