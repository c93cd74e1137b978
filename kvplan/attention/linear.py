"""Linear attention: a matrix state per head instead of a growing cache.

Shapes: vLLM `layers/mamba/mamba_utils.py` (vllm.md section 1), hf_config_quirks.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvplan.cache import CacheTensor, Fixed
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Gated DeltaNet (Qwen3-Next, arXiv 2412.06464): value heads of key_head_dim x value_head_dim."""

    layer_type: ClassVar[str] = "gated_deltanet"
    family: ClassVar[str] = "recurrent"
    kind: Literal["gated_deltanet"] = "gated_deltanet"
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns of Q and K, of V, and the state."""
        columns = self.conv_kernel - 1
        return (
            CacheTensor("conv_state", self.num_key_heads, 2 * self.key_head_dim * columns, Fixed()),
            CacheTensor("conv_state", self.num_value_heads, self.value_head_dim * columns, Fixed()),
            CacheTensor("recurrent_state", self.num_value_heads, self.key_head_dim * self.value_head_dim, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Projections to Q, K, V and gate z, to b and a; convolution; dt bias and A; gated norm; output."""
        value_heads = self.num_value_heads
        keys, values = self.num_key_heads * self.key_head_dim, value_heads * self.value_head_dim
        yield from linear("mixer", hidden_size, 2 * keys, units=self.num_key_heads, module="in_proj_qkv")
        yield from linear("mixer", hidden_size, values, units=value_heads, module="in_proj_qkv")
        yield from linear("mixer", hidden_size, values, units=value_heads, module="in_proj_z")
        yield from linear("mixer", hidden_size, 2 * value_heads, units=value_heads, module="in_proj_a")
        yield vector("mixer", 2 * keys * self.conv_kernel, units=self.num_key_heads)
        yield vector("mixer", values * self.conv_kernel, units=value_heads)
        yield vector("mixer", 2 * value_heads, units=value_heads)
        yield vector("norm", self.value_head_dim)
        yield from linear("mixer", values, hidden_size, units=value_heads, module="out_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDeltaAttention:
    """Kimi Delta Attention: per-channel gating; three convolution streams of heads x head_dim each.

    Of the weights: `full_rank`: the gates that are whole matrices, not products through head_dim (Kimi-K3: of the
    output; Ling: of the decay too).
    """

    layer_type: ClassVar[str] = "kda"
    family: ClassVar[str] = "recurrent"
    kind: Literal["kda"] = "kda"
    num_heads: int
    head_dim: int
    conv_kernel: int
    full_rank: Literal["none", "output", "both"] = "none"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns of Q, K and V, and the state."""
        columns = self.conv_kernel - 1
        return (
            CacheTensor("conv_state", self.num_heads, 3 * self.head_dim * columns, Fixed()),
            CacheTensor("recurrent_state", self.num_heads, self.head_dim * self.head_dim, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Q, K, V with convolutions; decay and output gates, through head_dim or whole; beta; norm; output."""
        inner, heads = self.num_heads * self.head_dim, self.num_heads
        for module in ("q_proj", "k_proj", "v_proj"):
            yield from linear("mixer", hidden_size, inner, units=heads, module=module)
        yield vector("mixer", 3 * inner * self.conv_kernel, units=heads)
        whole = {"none": "", "output": "g", "both": "fg"}[self.full_rank]
        for gate in ("f", "g"):
            if gate in whole:
                yield from linear("mixer", hidden_size, inner, units=heads, module=f"{gate}_proj")
            else:
                yield from linear("mixer", hidden_size, self.head_dim, module=f"{gate}_a_proj")
                yield from linear("mixer", self.head_dim, inner, units=heads, module=f"{gate}_b_proj")
        yield from linear("mixer", hidden_size, heads, units=heads, module="b_proj")
        yield vector("mixer", inner + heads, units=heads)
        yield vector("norm", self.head_dim)
        yield from linear("mixer", inner, hidden_size, units=heads, module="o_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention:
    """Lightning attention (MiniMax-01, arXiv 2501.08313): one head_dim x head_dim state per head."""

    layer_type: ClassVar[str] = "lightning_linear"
    family: ClassVar[str] = "recurrent"
    kind: Literal["lightning"] = "lightning"
    num_heads: int
    head_dim: int

    def tensors(self) -> tuple[CacheTensor, ...]:
        """The state."""
        return (CacheTensor("recurrent_state", self.num_heads, self.head_dim * self.head_dim, Fixed()),)

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Q, K, V and output gate, norm, output."""
        inner = self.num_heads * self.head_dim
        yield from linear("mixer", hidden_size, 3 * inner, units=self.num_heads, module="qkv_proj")
        yield from linear("mixer", hidden_size, inner, units=self.num_heads, module="output_gate")
        yield vector("norm", inner, units=self.num_heads)
        yield from linear("mixer", inner, hidden_size, units=self.num_heads, module="out_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rwkv:
    """RWKV-5 to 7: a head_size x head_size state per head and the last input of two token-shift mixers."""

    layer_type: ClassVar[str] = "rwkv"
    family: ClassVar[str] = "recurrent"
    kind: Literal["rwkv"] = "rwkv"
    num_heads: int
    head_size: int
    hidden_size: int

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Two token-shift vectors (copied on every rank) and the state."""
        return (
            CacheTensor("conv_state", 1, 2 * self.hidden_size, Fixed()),
            CacheTensor("recurrent_state", self.num_heads, self.head_size * self.head_size, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Receptance, key, value, gate and output projections; token-shift mixes, decay and bonus; group norm."""
        inner = self.num_heads * self.head_size
        yield from linear("mixer", hidden_size, 4 * inner, units=self.num_heads)
        yield vector("mixer", 5 * hidden_size + 2 * inner)
        yield vector("norm", 2 * inner)
        yield from linear("mixer", inner, hidden_size, units=self.num_heads)
