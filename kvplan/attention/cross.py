"""Cross attention: K and V of what an encoder (text, audio, images) produced; fixed once the prompt is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvplan.cache import CacheTensor, Fixed
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Attention to `encoder_tokens` encoder outputs, the longest that the model reads (Whisper: 1500 frames).

    Of the weights: `bias` on all projections; `qk_norm` on each head's Q and K (Llama-3.2-Vision).
    """

    family: ClassVar[str] = "cross"
    layer_type: ClassVar[str] = "cross_attention"
    kind: Literal["cross"] = "cross"
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    encoder_tokens: int
    bias: bool = False
    qk_norm: bool = False

    def tensors(self) -> tuple[CacheTensor, ...]:
        """K and V of every encoder token."""
        law = Fixed(self.encoder_tokens)
        return (
            CacheTensor("k", self.num_key_value_heads, self.head_dim, law),
            CacheTensor("v", self.num_key_value_heads, self.head_dim, law),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Q, K, V and output projections."""
        for module, heads in (
            ("q", self.num_attention_heads),
            ("k", self.num_key_value_heads),
            ("v", self.num_key_value_heads),
        ):
            yield from linear(
                "attention", hidden_size, heads * self.head_dim, units=heads, bias=self.bias, module=f"{module}_proj"
            )
        heads = self.num_attention_heads
        yield from linear("attention", heads * self.head_dim, hidden_size, units=heads, module="o_proj")
        if self.bias:
            yield vector("attention", hidden_size)
        if self.qk_norm:
            yield vector("norm", 2 * self.head_dim)
