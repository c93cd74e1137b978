"""Attention over key-value records compressed along the sequence (DeepSeek-V4's CSA and HCA).

Each token's key and value are one shared vector of head_dim, of which qk_rope_head_dim are rotary. A layer keeps a
sliding window of them; with a `compress_ratio` it also keeps one compressed record for every `ratio` tokens, and the
state of the compressor for the tokens not folded yet (DeepSeek-V4 reference inference code; vllm.md section 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvplan.cache import CacheTensor, Fixed, Law, PerToken, Window
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """CSA (`compress_ratio` 4, sparse, with an indexer), HCA (128, dense over few records), or window only (0).

    `compressor_overlap`: the compressor sees two neighbouring groups at once and keeps both halves in its state.
    `owns_entries` False: another layer holds the compressed records (DeepSeek-V4.1 `kv_source_layer_ids`).
    `index_from_latent`: the index key is made of the compressed record and needs no compressor of its own (V4.1).
    """

    family: ClassVar[str] = "compressed"
    kind: Literal["compressed"] = "compressed"
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    sliding_window: int
    compress_ratio: int = 0
    compressor_overlap: bool = False
    owns_entries: bool = True
    q_lora_rank: int | None = None
    o_lora_rank: int | None = None
    o_groups: int | None = None
    index_from_latent: bool = False
    index_head_dim: int | None = None
    index_n_heads: int | None = None
    index_topk: int | None = None

    @property
    def layer_type(self) -> str:
        """sliding_shared_kv where the layer keeps its window alone, csa or hca."""
        if not (self.compress_ratio and self.owns_entries):
            return "sliding_shared_kv"
        return "csa" if self.index_head_dim else "hca"

    def _record(self, law: Law, reads: Law | None = None) -> tuple[CacheTensor, CacheTensor]:
        return (
            CacheTensor("entry", 1, self.head_dim - self.qk_rope_head_dim, law, reads),
            CacheTensor("entry_rope", 1, self.qk_rope_head_dim, law, reads),
        )

    def _state(self, dim: int) -> CacheTensor:
        """Value and gate of each token not folded yet, twice as wide where neighbouring groups overlap."""
        return CacheTensor("compressor_state", 1, 2 * (1 + self.compressor_overlap) * dim, Fixed(self.compress_ratio))

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Window records; then compressed records, index keys and compressor states where the layer has them."""
        window = self._record(Window(self.sliding_window))
        if not (self.compress_ratio and self.owns_entries):
            return window
        law = PerToken(self.compress_ratio)
        parts = [*window, *self._record(law, Window(self.index_topk) if self.index_topk else None)]
        if self.compress_ratio > 1:
            parts.append(self._state(self.head_dim))
        if self.index_head_dim:
            parts.append(CacheTensor("index_k", 1, self.index_head_dim, law))
            parts += [] if self.index_from_latent else [self._state(self.index_head_dim)]
        return tuple(parts)

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Low-rank Q, the shared record, the output in groups of low rank, one sink per head; then the compressor."""
        heads, dim, rank = self.num_attention_heads, self.head_dim, self.q_lora_rank
        if rank:
            yield from linear("attention", hidden_size, rank, module="q_a_proj")
            yield vector("norm", rank)
        yield from linear("attention", rank or hidden_size, heads * dim, units=heads, module="q_b_proj")
        yield from linear("attention", hidden_size, dim, module="kv_proj")
        yield vector("norm", dim)
        yield from self._output_weights(hidden_size)
        yield vector("attention", heads, units=heads)
        if self.compress_ratio and self.owns_entries:
            yield from self._compressor_weights(hidden_size)

    def _output_weights(self, hidden_size: int) -> Iterator[Weight]:
        heads, groups = self.num_attention_heads, self.o_groups or 1
        values = heads * self.head_dim
        if not self.o_lora_rank:
            yield from linear("attention", values, hidden_size, units=heads, module="o_proj")
            return
        inner = groups * self.o_lora_rank
        yield from linear("attention", values // groups, inner, units=groups, module="o_a_proj")
        yield from linear("attention", inner, hidden_size, units=groups, module="o_b_proj")

    def _compressor_weights(self, hidden_size: int) -> Iterator[Weight]:
        """Value and gate of each token, a bias of its place in the group, a norm; copied and never quantized."""
        yield from self._fold(hidden_size, self.head_dim)
        if self.index_head_dim and self.index_n_heads:
            dim, heads = self.index_head_dim, self.index_n_heads
            if self.index_from_latent:
                yield from linear("indexer", self.head_dim, dim, module="wk")
            else:
                yield from self._fold(hidden_size, dim)
            yield from linear("indexer", self.q_lora_rank or hidden_size, heads * dim, module="wq_b")
            yield vector("indexer", hidden_size * heads)

    def _fold(self, hidden_size: int, dim: int) -> Iterator[Weight]:
        width = dim * (1 + self.compressor_overlap)
        yield vector("compressor", (2 * hidden_size + self.compress_ratio) * width)
        yield vector("norm", dim)
