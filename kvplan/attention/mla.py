"""Multi-head Latent Attention, with or without a sparse indexer.

Cache: one latent of kv_lora_rank and one rotary key of qk_rope_head_dim for a token, whatever the number of heads
(DeepSeek-V2, arXiv 2405.04434, section 2.1). The indexer of DeepSeek Sparse Attention adds one key of index_head_dim
(DeepSeek-V3.2-Exp report); top-k shrinks what a step reads, never what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvplan.cache import CacheTensor, PerToken, Window
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiHeadLatentAttention:
    """MLA. `index_head_dim` is None where the layer has no indexer of its own.

    `shares_index`: the layer is sparse but reuses another layer's selection (GLM-5.2 `indexer_types: shared`), so it
    stores no index key. `index_pool`: tokens folded into one index key (GLM-5.3-Flash). Of the weights: `bias` on the
    down projections and on the output.
    """

    family: ClassVar[str] = "mla"
    kind: Literal["mla"] = "mla"
    num_attention_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    index_head_dim: int | None = None
    index_n_heads: int | None = None
    index_topk: int | None = None
    index_pool: int = 1
    shares_index: bool = False
    bias: bool = False

    @property
    def layer_type(self) -> str:
        """mla, mla_dsa (own indexer) or mla_dsa_shared_index."""
        if self.shares_index:
            return "mla_dsa_shared_index"
        return "mla_dsa" if self.index_head_dim else "mla"

    @property
    def head_dim(self) -> int:
        """The head size of the MHA that MLA stands for: its content part."""
        return self.qk_nope_head_dim

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Latent, rotary key, and the index key where the layer owns one."""
        reads = Window(self.index_topk) if self.index_topk else None
        parts = [CacheTensor("latent", 1, self.kv_lora_rank, PerToken(), reads)]
        if self.qk_rope_head_dim:
            parts.append(CacheTensor("rope", 1, self.qk_rope_head_dim, PerToken(), reads))
        if self.index_head_dim and not self.shares_index:
            parts.append(CacheTensor("index_k", 1, self.index_head_dim, PerToken(self.index_pool)))
        return tuple(parts)

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Down and up projections of Q and KV with their latent norms, the output projection, the indexer.

        Down projections have no heads and are copied on every rank (DeepSeek-V3 report, section 2.1.1).
        """
        heads, rank = self.num_attention_heads, self.kv_lora_rank
        yield from self._query_weights(hidden_size)
        down = rank + self.qk_rope_head_dim
        yield from linear("attention", hidden_size, down, bias=self.bias, module="kv_a_proj_with_mqa")
        yield vector("norm", rank)
        up = heads * (self.qk_nope_head_dim + self.v_head_dim)
        yield from linear("attention", rank, up, units=heads, module="kv_b_proj")
        yield from linear("attention", heads * self.v_head_dim, hidden_size, units=heads, module="o_proj")
        if self.bias:
            yield vector("attention", hidden_size)
        if self.index_head_dim and not self.shares_index:
            yield from self._indexer_weights(hidden_size)

    def _query_weights(self, hidden_size: int) -> Iterator[Weight]:
        heads, rank = self.num_attention_heads, self.q_lora_rank
        queries = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        if not rank:
            yield from linear("attention", hidden_size, queries, units=heads, module="q_proj")
            return
        yield from linear("attention", hidden_size, rank, bias=self.bias, module="q_a_proj")
        yield vector("norm", rank)
        yield from linear("attention", rank, queries, units=heads, module="q_b_proj")

    def _indexer_weights(self, hidden_size: int) -> Iterator[Weight]:
        """Index queries from the query latent, index keys with a LayerNorm, one weight per index head; copied.

        Where keys are pooled, a gate of every channel and a position bias weigh the tokens of a pool.
        """
        if self.index_head_dim and self.index_n_heads:
            dim = self.index_head_dim
            yield from linear("indexer", self.q_lora_rank or hidden_size, self.index_n_heads * dim, module="wq_b")
            yield from linear("indexer", hidden_size, dim, module="wk")
            yield vector("norm", 2 * dim)
            yield vector("indexer", hidden_size * self.index_n_heads)
            if self.index_pool > 1:
                yield vector("indexer", (hidden_size + self.index_pool) * dim)
