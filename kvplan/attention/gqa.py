"""MHA, GQA and MQA, full, sliding or chunked: K and V of every KV head for every slot.

Cache: 2 x num_key_value_heads x head_dim elements a token (arXiv 2305.13245; MQA is one head, arXiv 1911.02150).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvplan.cache import CacheTensor, Law, PerToken, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQueryAttention:
    """Softmax attention over K and V heads.

    `v_head_dim`: where V is narrower or wider than K. `sliding_window`: a rolling window of that many tokens.
    `attention_chunk_size`: attention within aligned chunks (Llama 4); at most one chunk is live.
    `index_head_dim`: one extra index key per token of block-sparse attention (MiniMax-M3); sparsity shrinks reads,
    never the cache.
    """

    kind: Literal["gqa"] = "gqa"
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int | None = None
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    index_head_dim: int | None = None
    index_topk: int | None = None

    @property
    def law(self) -> Law:
        """How K and V grow."""
        bound = self.sliding_window or self.attention_chunk_size
        return Window(bound) if bound else PerToken()

    @property
    def layer_type(self) -> str:
        """The name that HF's `layer_types` would use."""
        if self.index_head_dim:
            return "gqa_block_sparse"
        if self.attention_chunk_size:
            return "chunked_attention"
        return "sliding_attention" if self.sliding_window else "full_attention"

    @property
    def family(self) -> str:
        """mha, mqa or gqa, by the number of KV heads."""
        if self.num_key_value_heads == self.num_attention_heads:
            return "mha"
        return "mqa" if self.num_key_value_heads == 1 else "gqa"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """K and V, and the index key where there is one."""
        reads = Window(self.index_topk) if self.index_topk else None
        kv_heads, v_dim = self.num_key_value_heads, self.v_head_dim or self.head_dim
        index = (CacheTensor("index_k", 1, self.index_head_dim, PerToken()),) if self.index_head_dim else ()
        return (
            CacheTensor("k", kv_heads, self.head_dim, self.law, reads),
            CacheTensor("v", kv_heads, v_dim, self.law, reads),
            *index,
        )
