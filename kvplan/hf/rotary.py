"""Tables of rotary cosines and sines, which engines compute when they load: positions x rotary elements.

A long context makes them large: 2.5 GiB for Llama 4 Scout's 10 M positions. One table for each distinct pair of size
and base, in the model's dtype; DeepSeek's in fp32 (vLLM `layers/rotary_embedding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvplan.attention import Attention
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.attention.none import SharedCache
from kvplan.hf.fields import Fields
from kvplan.model import ModelSpec, OtherWeight

_WITHOUT_NAMES = """
    bloom mpt gpt2 gpt_bigcode gpt_neo openai-gpt opt biogpt xglm jais jamba bart mbart plbart marian pegasus blenderbot
    m2m_100 whisper t5 mt5 umt5 nemotron_h
"""
_WITHOUT = frozenset(_WITHOUT_NAMES.split())
"""Learned, relative, computed otherwise, or no positions at all."""
_HALF = frozenset({"chatglm", "glm", "glm4"})
_MROPE_POSITIONS = 4
"""Image and video positions run ahead of tokens: engines make the table that many times longer."""


def rotary_tables(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """The tables of a model's layers; none where nothing says how far it sees."""
    context = spec.max_position_embeddings
    if context is None or spec.model_type in _WITHOUT:
        return
    rope = _sections(fields)
    share = _partial(fields, rope, spec)
    tables = {
        key for group in spec.layer_groups for a in group.attention for key in _keys(a, local=_has_local(fields, rope))
    }
    for dim, local in sorted(tables):
        positions = context if local else _positions(spec, rope, context)
        width = 2 if _is_fp32(spec) else 1
        yield OtherWeight(part="rotary", numel=width * positions * int(dim * share), held="engine")


def _sections(fields: Fields) -> list[Fields]:
    """`rope_scaling`, `rope_parameters`, and what stands in them by layer type."""
    found = [s for key in ("rope_scaling", "rope_parameters") if (s := fields.section(key)) is not None]
    inner = [s for f in found for k, v in f.raw.items() if isinstance(v, Mapping) and (s := f.section(k)) is not None]
    return found + inner


def _partial(fields: Fields, rope: list[Fields], spec: ModelSpec) -> float:
    """The share of a head that rotates."""
    if spec.model_type in _HALF and not fields.has("partial_rotary_factor"):
        return 0.5
    for section in (fields, *rope):
        for key in ("partial_rotary_factor", "rotary_pct", "partial_rotary_factors"):
            value = section.raw.get(key)
            if isinstance(value, int | float) and 0 < value <= 1:
                return float(value)
    return 1.0


def _has_local(fields: Fields, rope: list[Fields]) -> bool:
    """Whether sliding layers rotate about another base than full ones."""
    keys = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta", "sliding_window_rope_theta")
    return any(fields.has(key) for key in keys) or any("sliding_attention" in s.raw for s in rope)


def _keys(attention: Attention, *, local: bool) -> Iterator[tuple[int, bool]]:
    """(elements, whether it is a sliding layer's own) of the tables that one mixer reads."""
    if isinstance(attention, SharedCache):
        yield from _keys(attention.source, local=local)
    elif isinstance(attention, GroupedQueryAttention):
        yield attention.head_dim, local and attention.sliding_window is not None
    elif isinstance(attention, MultiHeadLatentAttention) and attention.qk_rope_head_dim:
        yield attention.qk_rope_head_dim, False
    elif isinstance(attention, CompressedAttention):
        yield attention.qk_rope_head_dim, not attention.compress_ratio


def _positions(spec: ModelSpec, rope: list[Fields], context: int) -> int:
    """Rows of a table: a stretched one as long as its scaling makes it."""
    scaling = spec.rope_scaling
    if any(s.has("mrope_section") for s in rope):
        return _MROPE_POSITIONS * context
    if scaling is None:
        return context
    original = scaling.original_max_position_embeddings
    if scaling.rope_type == "yarn":
        return int((original or context) * scaling.factor)
    if scaling.rope_type == "longrope":
        return context + (original or context)
    return int(context * scaling.factor) if scaling.rope_type in ("linear", "dynamic") else context


def _is_fp32(spec: ModelSpec) -> bool:
    """Stretched latent attention, and DeepSeek-V4's records, keep theirs in fp32."""
    kinds = {a.kind for _, a in spec.mixers()}
    yarn = spec.rope_scaling is not None and spec.rope_scaling.rope_type == "yarn"
    return "compressed" in kinds or ("mla" in kinds and yarn)
