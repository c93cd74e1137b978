"""Cross attention: K and V of what an encoder (text, audio, images) produced; fixed once the prompt is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvplan.cache import CacheTensor, Fixed
from kvplan.matrix import Weight, linear


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Attention to `encoder_tokens` encoder outputs, the longest that the model reads (Whisper: 1500 frames)."""

    kind: Literal["cross"] = "cross"
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    encoder_tokens: int
    qkv_bias: bool = False

    @property
    def layer_type(self) -> str:
        """cross_attention."""
        return "cross_attention"

    @property
    def family(self) -> str:
        """cross."""
        return "cross"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """K and V of every encoder token."""
        law = Fixed(self.encoder_tokens)
        return (
            CacheTensor("k", self.num_key_value_heads, self.head_dim, law),
            CacheTensor("v", self.num_key_value_heads, self.head_dim, law),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Q, K, V and output projections."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        yield from linear("attention", hidden_size, heads * self.head_dim, units=heads, bias=self.qkv_bias)
        for _ in ("k", "v"):
            yield from linear("attention", hidden_size, kv_heads * self.head_dim, units=kv_heads, bias=self.qkv_bias)
        yield from linear("attention", heads * self.head_dim, hidden_size, units=heads)
