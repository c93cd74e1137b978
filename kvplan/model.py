"""A model as its layers, and what `n` tokens of one session need on one rank.

A model's cost is a line, not a number: bytes per token (slope) and fixed bytes per session (states, filled windows).
All sizes here are *logical*; what an engine reserves for the same tokens stands in `kvplan.engines`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from kvplan.attention import Attention
from kvplan.cache import CacheTensor, Law
from kvplan.errors import BadInput
from kvplan.layers import layer_indices
from kvplan.matrix import Part
from kvplan.mlp import Mlp
from kvplan.parallel import Parallelism, stage_layers
from kvplan.storage import KvFormat

if TYPE_CHECKING:
    from kvplan.arith import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWeight:
    """Parameters that no attention kind and no MLP declares: a final norm, learned positions, an encoder, a gate.

    `units`: shares that ranks divide (1: a copy on each). `held`: `checkpoint` where text engines leave it out (speech
    output); `engine` where it is a table that engines compute when they load (rotary cosines), and no parameter.
    """

    part: Part
    numel: int
    units: int = 1
    held: Literal["both", "checkpoint", "engine"] = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that are alike. `layers`: their indices, as `layer_indices` reads them.

    `attention` holds one kind, or several where one layer runs several (Falcon-H1's attention beside Mamba-2,
    LongCat-Flash's two attentions). `norm_elements`: elements of one layer's norms outside its mixers. `other_weights`:
    what else one layer holds.
    """

    layers: str
    attention: tuple[Attention, ...]
    mlp: Mlp | None = None
    norm_elements: int = 0
    other_weights: tuple[OtherWeight, ...] = ()

    @property
    def indices(self) -> tuple[int, ...]:
        """Layer indices, ascending."""
        return layer_indices(self.layers)

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Cache tensors of one layer."""
        return tuple(t for a in self.attention for t in a.tensors())


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary positions are stretched beyond the trained length, under HF's names."""

    rope_type: str
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFormat:
    """A part of the model (`kvplan.matrix.Part`) that is stored in a format of its own."""

    part: str
    weight_format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What a checkpoint says of its weights and of its KV cache.

    `quant_method`: as the config names it. `weight_format`: fp8, int4, nvfp4, mxfp4 ... `block`: elements that share a
    scale. `parts`: those in another format (FP4 experts beside FP8). `unquantized`: parts kept in the model's dtype, or
    modules of one (attention.q_a_proj). `kv_cache_dtype`: a KV dtype that the checkpoint asks for, `none` where it says
    explicitly that KV is not quantized, None where it says nothing. FP8 weights never imply FP8 KV.
    """

    quant_method: str
    weight_format: str | None = None
    block: tuple[int, ...] | None = None
    parts: tuple[PartFormat, ...] = ()
    unquantized: tuple[str, ...] = ()
    kv_cache_dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model: where its figures come from, its layers, and what engines read beside them.

    `hub_ids`: repositories that share this geometry, quantized copies too. `mamba_ssm_dtype`: what the config states of
    recurrent states (None: nothing). `mtp`: the layers of the multi-token
    prediction module, which cost cache only when speculation is on.
    """

    name: str
    source: str
    model_type: str
    torch_dtype: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int | None
    layer_groups: tuple[LayerGroup, ...]
    architecture: str | None = None
    hub_ids: tuple[str, ...] = ()
    tie_word_embeddings: bool = False
    mamba_ssm_dtype: str | None = None
    rope_scaling: RopeScaling | None = None
    quantization: Quantization | None = None
    mtp: tuple[LayerGroup, ...] = ()
    other_weights: tuple[OtherWeight, ...] = ()
    notes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # cheap, for specs are keys of many caches; equality still compares all

    def __post_init__(self) -> None:
        seen = Counter(i for g in self.layer_groups for i in g.indices)
        twice = [i for i, n in seen.items() if n > 1]
        missing = sorted(set(range(len(seen))) - set(seen))
        if not seen or twice or missing:
            raise BadInput(
                f"{self.name}: layer_groups must name each layer once; "
                + (
                    f"layer {twice[0]} stands in two groups"
                    if twice
                    else f"layer {missing[0] if missing else 0} in none"
                )
            )

    @property
    def num_hidden_layers(self) -> int:
        """Decoder layers, without multi-token prediction."""
        return sum(len(g.indices) for g in self.layer_groups)

    def mixers(self) -> Iterator[tuple[int, Attention]]:
        """(number of layers, attention) for every kind in every group, in the order of the groups."""
        for group in self.layer_groups:
            for attention in group.attention:
                yield len(group.indices), attention

    def layers_by_kind(self) -> dict[str, int]:
        """Layer types under HF's names, with how many layers run each."""
        counts: Counter[str] = Counter()
        for count, attention in self.mixers():
            counts[attention.layer_type] += count
        return dict(counts)

    @property
    def attention_family(self) -> str:
        """mha, mqa, gqa, mla, compressed ...; hybrid where layers of several families cost cache."""
        families = {a.family for _, a in self.mixers()} - {"none"}
        return families.pop() if len(families) == 1 else "hybrid" if families else "none"


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes per slot of everything on one rank that follows the same law and the same sequence division."""

    law: Law
    bytes_per_slot: int
    grows: bool


Profile = tuple[Term, ...]
"""What one rank stores for one session: add bytes_per_slot x slots over the terms."""


def _terms(
    tensors: Iterable[tuple[int, CacheTensor]], kv_format: KvFormat, parallel: Parallelism, *, reads: bool
) -> Profile:
    totals: dict[tuple[Law, bool], int] = {}
    for layers, tensor in tensors:
        key = ((tensor.reads or tensor.law) if reads else tensor.law, tensor.grows)
        totals[key] = totals.get(key, 0) + layers * tensor.bytes_per_slot(kv_format, parallel.tp, parallel.dcp)
    return tuple(Term(law, size, grows) for (law, grows), size in totals.items() if size)


def _read_tensors(attention: Attention) -> tuple[CacheTensor, ...]:
    """What a step reads: a layer that shares another's cache, or its compressed records, reads those."""
    if attention.kind == "shared":
        return attention.source.tensors()
    if attention.kind == "compressed" and not attention.owns_entries:
        return replace(attention, owns_entries=True).tensors()
    return attention.tensors()


@lru_cache(maxsize=4096)
def profiles(
    spec: ModelSpec, kv_format: KvFormat, parallel: Parallelism, *, reads: bool = False
) -> tuple[Profile, ...]:
    """One `Profile` for each pipeline stage; of stored bytes, or of what one decode step reads."""
    stages = []
    for stage in stage_layers(spec.num_hidden_layers, parallel.pp):
        tensors = [
            (sum(i in stage for i in group.indices), tensor)
            for group in spec.layer_groups
            for attention in group.attention
            for tensor in (_read_tensors(attention) if reads else attention.tensors())
        ]
        stages.append(_terms(tensors, kv_format, parallel, reads=reads))
    return tuple(stages)


def profile_bytes(profile: Profile, tokens: Ints, dcp: int = 1) -> Ints:
    """Bytes of one session of `tokens` tokens (int or int64 array) on one rank."""
    from kvplan.arith import cdiv

    share = cdiv(tokens, dcp) if dcp > 1 else tokens
    total: Ints = tokens * 0
    for term in profile:
        total = total + term.bytes_per_slot * term.law.slots(share if term.grows else tokens)
    return total


def session_bytes(spec: ModelSpec, tokens: Ints, kv_format: KvFormat, parallel: Parallelism) -> Ints:
    """Logical bytes of one session of `tokens` tokens on the fullest rank (over pipeline stages)."""
    from kvplan.arith import maximum

    first, *rest = (profile_bytes(p, tokens, parallel.dcp) for p in profiles(spec, kv_format, parallel))
    for other in rest:
        first = maximum(first, other)
    return first


def session_bytes_all_ranks(spec: ModelSpec, tokens: Ints, kv_format: KvFormat, parallel: Parallelism) -> Ints:
    """Logical bytes of one session over all ranks that hold a part or a copy of it."""
    total: Ints = tokens * 0
    for profile in profiles(spec, kv_format, parallel):
        total = total + profile_bytes(profile, tokens, parallel.dcp)
    return total * parallel.tp


def read_bytes(spec: ModelSpec, tokens: Ints, kv_format: KvFormat, parallel: Parallelism) -> Ints:
    """Cache bytes that one decode step of one session reads on the fullest rank."""
    from kvplan.arith import maximum

    first, *rest = (profile_bytes(p, tokens, parallel.dcp) for p in profiles(spec, kv_format, parallel, reads=True))
    for other in rest:
        first = maximum(first, other)
    return first


@dataclass(frozen=True, slots=True)
class Line:
    """A session's cost on the fullest rank: `bytes_per_token` x tokens + `fixed_bytes` (at the context asked)."""

    bytes_per_token: Fraction
    fixed_bytes: int


def cost_line(spec: ModelSpec, tokens: int, kv_format: KvFormat, parallel: Parallelism) -> Line:
    """Slope, and states plus windows as full as they are at `tokens`, on the rank that holds most."""
    lines = _stage_lines(spec, kv_format, parallel)
    slope, fixed, _ = (
        lines[0] if len(lines) == 1 else max(lines, key=lambda x: profile_bytes(x[2], tokens, parallel.dcp))
    )
    return Line(slope, int(profile_bytes(fixed, tokens)))


@lru_cache(maxsize=4096)
def _stage_lines(
    spec: ModelSpec, kv_format: KvFormat, parallel: Parallelism
) -> tuple[tuple[Fraction, Profile, Profile], ...]:
    """(slope, terms that do not grow, all terms) of every pipeline stage."""
    return tuple(
        (
            sum((t.bytes_per_slot * t.law.slots_per_token() for t in profile), Fraction(0)) / parallel.dcp,
            tuple(t for t in profile if not t.grows),
            profile,
        )
        for profile in profiles(spec, kv_format, parallel)
    )
