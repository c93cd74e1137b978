"""MHA, GQA and MQA, full, sliding or chunked: K and V of every KV head for every slot.

Cache: 2 x num_key_value_heads x head_dim elements a token (arXiv 2305.13245; MQA is one head, arXiv 1911.02150).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvplan.cache import CacheTensor, Law, PerToken, Window
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedQueryAttention:
    """Softmax attention over K and V heads.

    `v_head_dim`: where V is narrower or wider than K. `sliding_window`: a rolling window of that many tokens.
    `idle_window`: a window that the model's longest context cannot pass (Phi-3.5); it bounds nothing, but engines that
    go by the config count its pages as a window's.
    `attention_chunk_size`: attention within aligned chunks (Llama 4); at most one chunk is live.
    `index_head_dim`: one extra index key per token of block-sparse attention (MiniMax-M3); sparsity shrinks reads,
    never the cache.

    Of the weights: `qkv_bias`, `o_bias`; `qk_norm` on each head's Q and K, or over all heads at once; `output_gate`:
    the query projection also yields a gate (Qwen3-Next); `sinks`: one learned logit per head (gpt-oss);
    `k_is_v`: one projection serves K and V (Gemma 4). `shared_block`: the weights are of one block that several layers
    call, and stand once among the model's other weights (Zamba).
    """

    kind: Literal["gqa"] = "gqa"
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int | None = None
    sliding_window: int | None = None
    idle_window: int | None = None
    attention_chunk_size: int | None = None
    index_head_dim: int | None = None
    index_topk: int | None = None
    index_n_heads: int | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["none", "head", "all"] = "none"
    output_gate: bool = False
    sinks: bool = False
    k_is_v: bool = False
    shared_block: bool = False

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

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Q, K, V and output projections, norms, sinks, and the block-sparse indexer."""
        if not self.shared_block:
            yield from self.query_weights(hidden_size)
            yield from self.kv_weights(hidden_size)

    def query_weights(self, hidden_size: int) -> Iterator[Weight]:
        """All but K and V: what a layer has that reads another layer's cache."""
        heads, v_dim = self.num_attention_heads, self.v_head_dim or self.head_dim
        queries = heads * self.head_dim * (2 if self.output_gate else 1)
        yield from linear("attention", hidden_size, queries, units=heads, bias=self.qkv_bias, module="q_proj")
        yield from linear("attention", heads * v_dim, hidden_size, units=heads, module="o_proj")
        if self.o_bias:
            yield vector("attention", hidden_size)
        if self.qk_norm != "none":
            yield vector("norm", self.head_dim * (1 if self.qk_norm == "head" else heads))
        if self.sinks:
            yield vector("attention", heads, units=heads)

    def kv_weights(self, hidden_size: int) -> Iterator[Weight]:
        """K and V projections, the norm of K, and the index keys of block-sparse attention with their queries."""
        kv_heads, v_dim = self.num_key_value_heads, self.v_head_dim or self.head_dim
        keys, values = kv_heads * self.head_dim, kv_heads * v_dim
        yield from linear("attention", hidden_size, keys, units=kv_heads, bias=self.qkv_bias, module="k_proj")
        if not self.k_is_v:
            yield from linear("attention", hidden_size, values, units=kv_heads, bias=self.qkv_bias, module="v_proj")
        if self.qk_norm != "none":
            yield vector("norm", self.head_dim * (1 if self.qk_norm == "head" else kv_heads))
        if self.index_head_dim and self.index_n_heads:
            yield from linear("indexer", hidden_size, (self.index_n_heads + 1) * self.index_head_dim)
            yield vector("norm", 2 * self.index_head_dim)
