"""The answer of `kvplan compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kvplan import __version__
from kvplan.compare import Row, compare, crossover_tp, explain, has_mha_counterpart, resolve_dtype, variant
from kvplan.errors import Unsupported
from kvplan.model import ModelSpec
from kvplan.storage import KvFormat
from kvplan.table import Column, Document, Table
from kvplan.units import format_bytes, format_exact_bytes, format_tokens

if TYPE_CHECKING:
    from kvplan.formats.plot import LineChart

DEFAULT_AGAINST = ("mha", "mqa", "gqa:8", "mla")
SIZES = "Sizes: 1 KiB = 1,024 B, 1 GiB = 2^30 B; k = 1,024 tokens."
_SHARING = "KV heads share out over ranks; a latent is one head, so every rank holds a copy."
_VARIANTS = {"mha", "mqa", "gqa", "mla"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked. `against` names variants of the same layers (mha, mqa, gqa:N, mla) and at most one model.

    `stored`: model name -> the format in which an engine stores its cache, in place of `kv_dtypes`. `at_tp`: the TP at
    which sessions are shown, the first of `tps` unless told otherwise.
    """

    specs: tuple[ModelSpec, ...]
    contexts: tuple[int, ...]
    tps: tuple[int, ...]
    kv_dtypes: tuple[str, ...] = ("auto",)
    stored: Mapping[str, KvFormat] = field(default_factory=dict)
    at_tp: int | None = None
    against: tuple[str, ...] = ()
    batch: int = 1
    explain: bool = False

    @property
    def tp(self) -> int:
        """The TP at which sessions are shown."""
        return self.at_tp or self.tps[0]

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

    def dtypes(self, spec: ModelSpec) -> tuple[str | KvFormat, ...]:
        """KV dtypes of one model."""
        return (self.stored[spec.name],) if spec.name in self.stored else self.kv_dtypes

    def rows(self, contexts: Sequence[int], tps: Sequence[int], baseline: ModelSpec | None = None) -> Iterator[Row]:
        """Every combination, models slowest, contexts fastest."""
        for spec in self.specs:
            yield from compare(
                [spec], contexts=contexts, tps=tps, kv_dtypes=self.dtypes(spec), batch=self.batch, baseline=baseline
            )


def answer(question: Question) -> Document:
    """Tables for people, `rows` for programs."""
    baseline = question.baseline()
    rows = list(question.rows(question.contexts, question.tps, baseline))
    shown = [r for r in rows if r.tp == question.tp]
    others, notes = _alternatives(question)
    crossings = list(_crossings(question))
    tables = [_sessions(question, shown, baseline), *_scaling(question, rows, crossings)]
    if others:
        tables.append(_same_layers(question.tp, others))
    if question.explain:
        tables += [_derivation(question, spec) for spec in question.specs]
    payload: dict[str, Any] = {"command": "compare", "version": __version__, "rows": [_plain(r) for r in rows]}
    if others:
        payload["alternatives"] = [_plain(r) for r in others]
    return Document(
        command="compare",
        lead=_lead(question, [r for r in shown if r.context_tokens == question.contexts[-1]]),
        tables=tables,
        payload=payload,
        notes=[*notes, *(crossings if len(question.tps) == 1 else ()), SIZES],
    )


def chart(question: Question) -> LineChart:
    """A session's bytes against context, from the shortest asked (or 4k) to the longest."""
    from kvplan.charts import cache, lengths

    contexts = lengths(max(question.contexts), question.contexts)
    return cache(question.rows(contexts, (question.tp,)))


def _lead(question: Question, rows: Sequence[Row]) -> str:
    """The least and the most that a session takes; of a single one, what it is made of."""
    one = question.batch == 1
    number = "A session" if one else f"{question.batch:,} sessions"
    what = f"{number} of {format_tokens(rows[0].context_tokens)} tokens take{'s' if one else ''}"
    where = f"on each rank at TP {question.tp}"
    return _of_one(rows[0], what, where) if len(rows) == 1 else _of_several(rows, what, where)


def _of_one(row: Row, what: str, where: str) -> str:
    fixed, saved = row.fixed_bytes_per_session_per_rank, row.saving_vs_mha
    beside = f" and {format_bytes(fixed)} fixed per session" if fixed else ""
    against = f", {abs(saved):.2%} {'less' if saved > 0 else 'more'} than MHA with the same heads" if saved else ""
    return (
        f"{what} {format_bytes(row.batch_bytes_per_rank)} {where} with {row.model} ({row.attention}, {row.kv_dtype}): "
        f"{format_exact_bytes(row.bytes_per_token_per_rank)} a token{beside}{against}."
    )


def _of_several(rows: Sequence[Row], what: str, where: str) -> str:
    several_dtypes = len({r.kv_dtype for r in rows}) > 1
    least, most = (pick(rows, key=lambda r: r.batch_bytes_per_rank) for pick in (min, max))
    low, high = (
        f"{format_bytes(r.batch_bytes_per_rank)} ({r.model}{f', {r.kv_dtype}' if several_dtypes else ''})"
        for r in (least, most)
    )
    times = most.batch_bytes_per_rank / least.batch_bytes_per_rank if least.batch_bytes_per_rank else 1
    return f"{what} from {low} to {high} {where}{f', {times:.2f} times as much' if times > 1 else ''}."


def _plain(row: Row) -> dict[str, Any]:
    plain = asdict(row)
    if plain["saving_vs_baseline"] is None:
        del plain["saving_vs_baseline"]
    return plain


def _sessions(question: Question, shown: Sequence[Row], baseline: ModelSpec | None) -> Table:
    """One line per model and dtype at one TP; contexts side by side."""
    width = len(question.contexts)
    size = "batch_bytes_per_rank" if question.batch > 1 else "session_bytes_per_rank"
    columns = [
        Column("model", "Model"),
        Column("attention", "Attention"),
        Column("kv_dtype", "KV dtype"),
        Column("bytes_per_token_per_rank", "Per token", "exact_bytes"),
        Column("fixed_bytes_per_session_per_rank", "Fixed", "bytes"),
        *(Column(f"{size}_{n}", format_tokens(n), "bytes") for n in question.contexts),
        Column("saving_vs_mha", "Saved vs MHA", "percent"),
    ]
    if baseline:
        columns.append(Column("saving_vs_baseline", f"Saved vs {baseline.name}", "percent"))
    lines = [shown[i : i + width] for i in range(0, len(shown), width)]
    what = "one session" if question.batch == 1 else f"{question.batch:,} sessions"
    return Table(
        title=f"Cache of {what} on each rank, TP {question.tp}",
        columns=tuple(columns),
        rows=[
            (
                line[0].model, line[0].attention, line[0].kv_dtype, line[0].bytes_per_token_per_rank,
                line[-1].fixed_bytes_per_session_per_rank, *(getattr(r, size) for r in line), line[-1].saving_vs_mha,
                *((line[-1].saving_vs_baseline,) if baseline else ()),
            )
            for line in lines
        ],
        caption="Logical bytes: what the attention must keep; `kvplan fit` says what an engine reserves. Fixed: states "
        f"and full windows of a session, at {format_tokens(question.contexts[-1])} tokens.",
        index_columns=3,
    )  # fmt: skip


def _scaling(question: Question, rows: Sequence[Row], crossings: Sequence[str]) -> Iterator[Table]:
    """Bytes per token on each rank as TP grows."""
    if len(question.tps) < 2:
        return
    tokens = question.contexts[0]
    found = {(r.model, r.kv_dtype, r.tp): r.bytes_per_token_per_rank for r in rows if r.context_tokens == tokens}
    yield Table(
        title="Bytes per token on each rank as tensor parallelism grows",
        columns=(
            Column("model", "Model"),
            Column("kv_dtype", "KV dtype"),
            *(Column(f"tp{tp}", f"TP {tp}", "exact_bytes") for tp in question.tps),
        ),
        rows=[
            (model, dtype, *(found[model, dtype, tp] for tp in question.tps))
            for model, dtype in dict.fromkeys((m, d) for m, d, _ in found)
        ],
        caption=" ".join((_SHARING, *crossings)),
        index_columns=2,
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
            own = resolve_dtype(spec, question.dtypes(spec)[0])
            fmt = own if changed.attention_family == "mla" and "latent" not in own.refuses else own.plain()
            rows += compare([changed], contexts=question.contexts[-1:], tps=(question.tp,), kv_dtypes=(fmt,))
    return rows, notes


def _same_layers(tp: int, others: Sequence[Row]) -> Table:
    return Table(
        title=f"One session of the same layers with other attention, TP {tp}",
        columns=(
            Column("model", "Model"),
            Column("kv_dtype", "KV dtype"),
            Column("bytes_per_token_per_layer", "Per token, layer", "exact_bytes"),
            Column("bytes_per_token_per_rank", "Per token", "exact_bytes"),
            Column("session_bytes_per_rank", format_tokens(others[0].context_tokens), "bytes"),
            Column("saving_vs_mha", "Saved vs MHA", "percent"),
        ),
        rows=[
            (
                r.model, r.kv_dtype, r.bytes_per_token_per_layer, r.bytes_per_token_per_rank,
                r.session_bytes_per_rank, r.saving_vs_mha,
            )
            for r in others
        ],
        index_columns=2,
    )  # fmt: skip


def _derivation(question: Question, spec: ModelSpec) -> Table:
    fmt = resolve_dtype(spec, question.dtypes(spec)[0])
    tp, tokens = question.tp, question.contexts[0]
    return Table(
        title=f"{spec.name}: {fmt.name}, TP {tp}, {format_tokens(tokens)} tokens, term by term",
        columns=(
            Column("attention", "Layers"),
            Column("layers", "Count", "count"),
            Column("role", "Tensor"),
            Column("heads_per_rank", "Heads", "count"),
            Column("dim", "Dim", "count"),
            Column("storage", "Stored as"),
            Column("bytes_per_slot", "Per slot", "exact_bytes"),
            Column("slots", "Slots", "count"),
            Column("total_bytes", "Total", "exact_bytes"),
        ),
        rows=[
            (
                t.attention, t.layers, t.role, t.heads_per_rank, t.dim, t.storage, t.bytes_per_slot, t.slots,
                t.total_bytes,
            )
            for t in explain(spec, fmt, tp, tokens)
        ],
        caption="Total = count x per slot x slots.",
    )  # fmt: skip


def _crossings(question: Question) -> Iterator[str]:
    """Where tensor parallelism turns the order of two models round; of one model and what it might have been."""
    for sharded, copied in _pairs(question):
        own = copied if copied in question.specs else sharded
        tp = crossover_tp(sharded, copied, resolve_dtype(copied, question.dtypes(own)[0]))
        if tp:
            yield f"From TP {tp} on, a token of {sharded.name} takes fewer bytes a rank than one of {copied.name}."


def _pairs(question: Question) -> list[tuple[ModelSpec, ModelSpec]]:
    """(model whose heads share out, model that is copied)."""
    spec, *others = question.specs
    if others:
        return [(a, b) for a in question.specs for b in question.specs if a is not b]
    if spec.attention_family == "mla":
        return [(variant(spec, name), spec) for name in question.variants if name.startswith("gqa")]
    if spec.attention_family in {"gqa", "mha"} and "mla" in question.variants:
        return [(spec, variant(spec, "mla"))]
    return []
