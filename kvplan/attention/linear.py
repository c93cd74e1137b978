"""Linear attention: a matrix state per head instead of a growing cache.

Shapes: vLLM `layers/mamba/mamba_utils.py` (vllm.md section 1), hf_config_quirks.md section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvplan.cache import CacheTensor, Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Gated DeltaNet (Qwen3-Next, arXiv 2412.06464): value heads of key_head_dim x value_head_dim."""

    kind: Literal["gated_deltanet"] = "gated_deltanet"
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int

    @property
    def layer_type(self) -> str:
        """gated_deltanet."""
        return "gated_deltanet"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns of Q and K, of V, and the state."""
        columns = self.conv_kernel - 1
        return (
            CacheTensor("conv_state", self.num_key_heads, 2 * self.key_head_dim * columns, Fixed()),
            CacheTensor("conv_state", self.num_value_heads, self.value_head_dim * columns, Fixed()),
            CacheTensor("recurrent_state", self.num_value_heads, self.key_head_dim * self.value_head_dim, Fixed()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDeltaAttention:
    """Kimi Delta Attention: per-channel gating; three convolution streams of heads x head_dim each."""

    kind: Literal["kda"] = "kda"
    num_heads: int
    head_dim: int
    conv_kernel: int

    @property
    def layer_type(self) -> str:
        """kda."""
        return "kda"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns of Q, K and V, and the state."""
        columns = self.conv_kernel - 1
        return (
            CacheTensor("conv_state", self.num_heads, 3 * self.head_dim * columns, Fixed()),
            CacheTensor("recurrent_state", self.num_heads, self.head_dim * self.head_dim, Fixed()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention:
    """Lightning attention (MiniMax-01, arXiv 2501.08313): one head_dim x head_dim state per head."""

    kind: Literal["lightning"] = "lightning"
    num_heads: int
    head_dim: int

    @property
    def layer_type(self) -> str:
        """lightning_linear."""
        return "lightning_linear"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """The state."""
        return (CacheTensor("recurrent_state", self.num_heads, self.head_dim * self.head_dim, Fixed()),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rwkv:
    """RWKV-5 to 7: a head_size x head_size state per head and the last input of two token-shift mixers."""

    kind: Literal["rwkv"] = "rwkv"
    num_heads: int
    head_size: int
    hidden_size: int

    @property
    def layer_type(self) -> str:
        """rwkv."""
        return "rwkv"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Two token-shift vectors (copied on every rank) and the state."""
        return (
            CacheTensor("conv_state", 1, 2 * self.hidden_size, Fixed()),
            CacheTensor("recurrent_state", self.num_heads, self.head_size * self.head_size, Fixed()),
        )
