"""Decode of MHA, GQA and MQA over the same paged cache, to set beside MLA."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.validate.packing import Record
from kvplan.validate.paged import PagedCache


def record(attention: GroupedQueryAttention) -> Record:
    """One token: K of every head, then V of every head, in bf16."""
    return Record(attention.tensors())


def split_heads(values: Tensor, attention: GroupedQueryAttention) -> tuple[Tensor, Tensor]:
    """[batch, tokens, width] -> K and V [batch, tokens, kv_heads, head_dim]."""
    keys, values = (torch.unflatten(v, -1, (attention.num_key_value_heads, -1)) for v in values.chunk(2, -1))
    return keys, values


def decode(query: Tensor, cache: PagedCache, attention: GroupedQueryAttention) -> Callable[[], Tensor]:
    """One step for query [batch, 1, heads, head_dim]: [batch, 1, heads, head_dim], every session equally long.

    Query heads of one group are rows against their KV head, so K and V are read once.
    """
    batch, _, heads, head_dim = query.shape
    rows = query.view(batch, attention.num_key_value_heads, -1, head_dim)
    read = cache.reader()

    def launch() -> Tensor:
        keys, values = split_heads(cache.record.unpack(read()), attention)
        output = scaled_dot_product_attention(rows, keys.transpose(1, 2), values.transpose(1, 2))
        return output.reshape(batch, 1, heads, head_dim)

    return launch
