"""Softmax attention: how many heads of what width a layer keeps, and how far back it sees.

A `HeadRule` reads heads and dims of one layer; `full`, `sliding` and `chunked` turn one into a `Maker`, which builds
what a layer of that type runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvplan.attention import Attention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.hf.fields import Fields
from kvplan.hf.windows import CHUNKED, FULL, SLIDING

Layer: TypeAlias = tuple[Attention, ...]
Maker: TypeAlias = Callable[[Fields, int], Layer]


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, KV heads, and the width of a K and of a V head (None: as K)."""

    query: int
    kv: int
    dim: int
    v_dim: int | None = None


HeadRule: TypeAlias = Callable[[Fields, int], Heads]


def head_dim(fields: Fields, query_heads: int) -> int:
    """`head_dim`, else hidden_size / num_attention_heads, which must divide."""
    stated = fields.size("head_dim")
    if stated:
        return stated
    hidden = fields.need_size("hidden_size")
    if hidden % query_heads:
        raise fields.bad("hidden_size", f"is not a multiple of {query_heads} attention heads, and head_dim is absent")
    return hidden // query_heads


def checked(fields: Fields, heads: Heads) -> Heads:
    """Heads that can be: query heads are a multiple of KV heads."""
    if heads.kv > heads.query or heads.query % heads.kv:
        raise fields.bad("num_key_value_heads", f"{heads.kv} KV heads cannot serve {heads.query} query heads")
    return heads


def standard(fields: Fields, _layer: int) -> Heads:
    """`num_key_value_heads`, or as many as query heads where it is absent or null (MHA)."""
    query = fields.need_size("num_attention_heads")
    return checked(fields, Heads(query, fields.size("num_key_value_heads") or query, head_dim(fields, query)))


def attention(
    fields: Fields, heads: Heads, *, window: int | None = None, chunk: int | None = None
) -> GroupedQueryAttention:
    """One softmax mixer. A bound that the context cannot pass bounds nothing, and is left out with a note."""
    context = fields.count("max_position_embeddings")
    if window and context and window >= context:
        fields.note(f"sliding_window {window} is not below the maximum context {context}: full attention")
        window = None
    return GroupedQueryAttention(
        num_attention_heads=heads.query,
        num_key_value_heads=heads.kv,
        head_dim=heads.dim,
        v_head_dim=None if heads.v_dim == heads.dim else heads.v_dim,
        sliding_window=window,
        attention_chunk_size=chunk,
    )


def full(heads: HeadRule = standard) -> Maker:
    """Attention over everything."""
    return lambda fields, layer: (attention(fields, heads(fields, layer)),)


def sliding(heads: HeadRule = standard) -> Maker:
    """Attention over the last `sliding_window` tokens."""
    return lambda fields, layer: (
        attention(fields, heads(fields, layer), window=fields.need_size("sliding_window")),
    )


def chunked(heads: HeadRule = standard) -> Maker:
    """Attention inside aligned chunks of `attention_chunk_size` tokens."""
    return lambda fields, layer: (
        attention(fields, heads(fields, layer), chunk=fields.need_size("attention_chunk_size")),
    )


def softmax(heads: HeadRule = standard, sliding_heads: HeadRule | None = None) -> Mapping[str, Maker]:
    """What the three softmax layer types build."""
    return {
        FULL: full(heads),
        "attention": full(heads),
        SLIDING: sliding(sliding_heads or heads),
        CHUNKED: chunked(heads),
    }
