"""Softmax attention: what a full, a sliding and a chunked layer build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kvplan.attention import Attention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.hf import rope
from kvplan.hf.fields import Fields
from kvplan.hf.heads import HeadRule, Heads, standard
from kvplan.hf.windows import CHUNKED, FULL, SLIDING

Layer: TypeAlias = tuple[Attention, ...]
Maker: TypeAlias = Callable[[Fields, int], Layer]
"""Builds what one layer of some type runs."""


def attention(
    fields: Fields, heads: Heads, *, window: int | None = None, chunk: int | None = None
) -> GroupedQueryAttention:
    """One softmax mixer. A window that the context cannot pass bounds nothing: it is kept as idle, with a note."""
    context = rope.max_context(fields)
    idle = bool(window and context and window >= context)
    if idle:
        fields.note(f"sliding_window {window} is not below the maximum context {context}: full attention")
    return GroupedQueryAttention(
        num_attention_heads=heads.query,
        num_key_value_heads=heads.kv,
        head_dim=heads.dim,
        v_head_dim=None if heads.v_dim == heads.dim else heads.v_dim,
        sliding_window=None if idle else window,
        idle_window=window if idle else None,
        attention_chunk_size=chunk,
    )


def full(heads: HeadRule = standard) -> Maker:
    """Attention over everything."""
    return lambda fields, layer: (attention(fields, heads(fields, layer)),)


def sliding(heads: HeadRule = standard, key: str = "sliding_window") -> Maker:
    """Attention over the last `sliding_window` tokens."""
    return lambda fields, layer: (attention(fields, heads(fields, layer), window=fields.need_size(key)),)


def chunked(heads: HeadRule = standard) -> Maker:
    """Attention inside aligned chunks of `attention_chunk_size` tokens."""
    return lambda fields, layer: (
        attention(fields, heads(fields, layer), chunk=fields.need_size("attention_chunk_size")),
    )


def softmax(heads: HeadRule = standard, sliding_heads: HeadRule | None = None) -> Mapping[str, Maker]:
    """What the softmax layer types build."""
    return {
        FULL: full(heads),
        "attention": full(heads),
        SLIDING: sliding(sliding_heads or heads),
        CHUNKED: chunked(sliding_heads or heads),
    }
