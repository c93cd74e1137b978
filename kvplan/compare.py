"""Side by side: what a session costs under each model, KV dtype, TP and context; and what the same layers would cost
with other attention.

Ratios that are published for one layer (MLA saves 98.24 % against MHA of 128 heads) come out of the same arithmetic as
the bytes of whole models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from kvplan.attention import Attention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.errors import BadInput, Unsupported
from kvplan.model import LayerGroup, ModelSpec, cost_line, session_bytes, session_bytes_all_ranks
from kvplan.parallel import Parallelism
from kvplan.storage import KvFormat, kv_format

MLA_RANK, MLA_ROPE = 512, 64
"""The latent that "the same layers as MLA" means: DeepSeek's, in every size of model (arXiv 2405.04434, 2412.19437)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a comparison. Bytes are logical; per rank means on the fullest rank."""

    model: str
    attention: str
    kv_dtype: str
    tp: int
    context_tokens: int
    batch: int
    bytes_per_token_per_layer: int | float | None
    bytes_per_token_per_rank: int | float
    fixed_bytes_per_session_per_rank: int
    session_bytes_per_rank: int
    session_bytes_all_ranks: int
    batch_bytes_per_rank: int
    saving_vs_mha: float | None
    saving_vs_baseline: float | None = None


def number(value: Fraction) -> int | float:
    """An int where it is one; the exact quotient as a float where compression makes bytes per token fractional."""
    return int(value) if value.denominator == 1 else float(value)


def as_heads(attention: Attention, kv_heads: int | None) -> Attention:
    """The same layer as MHA (`kv_heads` None), MQA (1) or GQA; windows stay, layers without a cache of heads stay."""
    if attention.kind == "shared":
        attention = attention.source
    if attention.kind not in {"gqa", "mla", "compressed"}:
        return attention
    heads = attention.num_attention_heads
    if kv_heads and heads % kv_heads:
        raise Unsupported(f"gqa:{kv_heads}: {heads} query heads do not share {kv_heads} KV heads evenly")
    window = (attention.sliding_window, attention.attention_chunk_size) if attention.kind == "gqa" else (None, None)
    return GroupedQueryAttention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        head_dim=attention.head_dim,
        sliding_window=window[0],
        attention_chunk_size=window[1],
    )


def as_latent(attention: Attention) -> Attention:
    """The same layer as MLA: with its own latent and no indexer, or DeepSeek's; layers without heads stay."""
    if attention.kind == "shared":
        attention = attention.source
    if attention.kind == "mla":
        return replace(attention, index_head_dim=None, index_topk=None, index_n_heads=None, shares_index=False)
    if attention.kind not in {"gqa", "compressed"}:
        return attention
    return MultiHeadLatentAttention(
        num_attention_heads=attention.num_attention_heads,
        kv_lora_rank=MLA_RANK,
        qk_rope_head_dim=MLA_ROPE,
        qk_nope_head_dim=attention.head_dim,
        v_head_dim=attention.head_dim,
    )


@lru_cache(maxsize=1024)
def variant(spec: ModelSpec, name: str) -> ModelSpec:
    """`spec` with its attention replaced: mha, mqa, gqa:N or mla."""
    kind, _, count = name.partition(":")
    if kind == "mla" and not count:
        change = as_latent
    elif kind in {"mha", "mqa", "gqa"} and (bool(count) == (kind == "gqa")):
        if count and not (count.isdecimal() and int(count) > 0):
            raise BadInput(f"--against: {name!r} needs a number of KV heads, such as gqa:8")
        kv_heads = {"mha": None, "mqa": 1}.get(kind, int(count or 0))

        def change(attention: Attention) -> Attention:
            return as_heads(attention, kv_heads)
    else:
        raise BadInput(f"--against: {name!r} is not mha, mqa, gqa:N or mla, nor a model")
    groups = tuple(replace(g, attention=tuple(change(a) for a in g.attention)) for g in spec.layer_groups)
    return replace(spec, name=f"{spec.name} as {name}", layer_groups=groups)


def has_mha_counterpart(spec: ModelSpec) -> bool:
    """Whether "MHA of the same layers" means something: every layer that costs cache attends with heads."""
    families = {a.family for _, a in spec.mixers()} - {"none"}
    return bool(families) and families <= {"mha", "mqa", "gqa", "mla", "compressed"}


def resolve_dtype(spec: ModelSpec, name: str | KvFormat) -> KvFormat:
    """A KV dtype by name, or as an engine stores it; `auto`: what the checkpoint asks for, else its own dtype."""
    if isinstance(name, KvFormat):
        return name
    if name != "auto":
        return kv_format(name)
    hint = spec.quantization.kv_cache_dtype if spec.quantization else None
    return kv_format(hint if hint and hint != "none" else spec.torch_dtype)


def _per_layer(spec: ModelSpec, fmt: KvFormat, tp: int) -> Fraction | None:
    """Bytes per token of one layer on one rank, where all layers that grow are alike and none is fixed."""
    slopes = set()
    for _, attention in spec.mixers():
        tensors = attention.tensors()
        slopes.add(sum((t.bytes_per_slot(fmt, tp) * t.law.slots_per_token() for t in tensors), Fraction(0)))
    return slopes.pop() if len(slopes) == 1 and any(slopes) else None


def compare_row(
    spec: ModelSpec, fmt: KvFormat, tp: int, tokens: int, *, batch: int = 1, baseline: ModelSpec | None = None
) -> Row:
    """One line. MHA is priced at the same element format; `baseline`, another model, in its own torch dtype."""
    parallel = Parallelism(tp=tp)
    line, layer = cost_line(spec, tokens, fmt, parallel), _per_layer(spec, fmt, tp)
    session = int(session_bytes(spec, tokens, fmt, parallel))
    mha = variant(spec, "mha") if has_mha_counterpart(spec) else None
    return Row(
        model=spec.name,
        attention=spec.attention_family,
        kv_dtype=fmt.name,
        tp=tp,
        context_tokens=tokens,
        batch=batch,
        bytes_per_token_per_layer=None if layer is None else number(layer),
        bytes_per_token_per_rank=number(line.bytes_per_token),
        fixed_bytes_per_session_per_rank=line.fixed_bytes,
        session_bytes_per_rank=session,
        session_bytes_all_ranks=int(session_bytes_all_ranks(spec, tokens, fmt, parallel)),
        batch_bytes_per_rank=session * batch,
        saving_vs_mha=_saving(session, mha, fmt.plain(), tokens, parallel) if mha else None,
        saving_vs_baseline=(
            _saving(session, baseline, kv_format(baseline.torch_dtype), tokens, parallel) if baseline else None
        ),
    )


def _saving(session: int, other: ModelSpec, fmt: KvFormat, tokens: int, parallel: Parallelism) -> float | None:
    whole = int(session_bytes(other, tokens, fmt, parallel))
    return 1 - session / whole if whole else None


def compare(
    specs: Iterable[ModelSpec],
    *,
    contexts: Sequence[int],
    tps: Sequence[int] = (1,),
    kv_dtypes: Sequence[str | KvFormat] = ("bf16",),
    batch: int = 1,
    baseline: ModelSpec | None = None,
) -> Iterator[Row]:
    """Every combination, models slowest, contexts fastest."""
    for spec in specs:
        for dtype in kv_dtypes:
            fmt = resolve_dtype(spec, dtype)
            for tp in tps:
                for tokens in contexts:
                    yield compare_row(spec, fmt, tp, tokens, batch=batch, baseline=baseline)


def crossover_tp(sharded: ModelSpec, copied: ModelSpec, fmt: KvFormat, limit: int = 64) -> int | None:
    """The least TP (a power of two) at which a token of `sharded` takes fewer bytes per rank than one of `copied`.

    None where it never does, and where it already does at TP 1 (then nothing crosses).
    """
    tp = 1
    while tp <= limit:
        shared = cost_line(sharded, 1, fmt.plain(), Parallelism(tp=tp)).bytes_per_token
        if shared < cost_line(copied, 1, fmt, Parallelism(tp=tp)).bytes_per_token:
            return tp if tp > 1 else None
        tp *= 2
    return None


@dataclass(frozen=True, slots=True)
class Term:
    """One tensor of a derivation: `layers` x `heads` x (dim -> vector_bytes) x slots."""

    group: LayerGroup
    attention: str
    role: str
    layers: int
    heads_per_rank: int
    dim: int
    storage: str
    bytes_per_slot: int
    slots: int
    total_bytes: int


def explain(spec: ModelSpec, fmt: KvFormat, tp: int, tokens: int) -> Iterator[Term]:
    """The terms whose total is `session_bytes` on one rank (one pipeline stage)."""
    for group in spec.layer_groups:
        for attention in group.attention:
            for t in attention.tensors():
                size, layers, slots = t.bytes_per_slot(fmt, tp), len(group.indices), int(t.slots(tokens))
                heads, storage = -(-t.heads // tp), fmt.of(t.role).name
                yield Term(
                    group, attention.layer_type, t.role, layers, heads, t.dim, storage, size, slots,
                    layers * size * slots,
                )  # fmt: skip
