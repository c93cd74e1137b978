"""State-space layers and short convolutions: one state for a session, whatever the context.

A causal convolution over `conv_kernel` tokens keeps the last conv_kernel - 1 columns. Shapes: vLLM
`layers/mamba/mamba_utils.py` (vllm.md section 1) and the transformers caches (hf_config_quirks.md section 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvplan.cache import CacheTensor, Fixed
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Selective state space with one state of `state_size` per channel (arXiv 2312.00752).

    Of the weights: `dt_norms` of dt, B and C (Jamba); `conv_bias`; `proj_bias` on in_proj and out_proj.
    """

    layer_type: ClassVar[str] = "mamba1"
    family: ClassVar[str] = "recurrent"
    kind: Literal["mamba1"] = "mamba1"
    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int | None = None
    dt_norms: bool = False
    conv_bias: bool = True
    proj_bias: bool = False

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns and the state; channels share out over ranks."""
        return (
            CacheTensor("conv_state", self.intermediate_size, self.conv_kernel - 1, Fixed()),
            CacheTensor("recurrent_state", self.intermediate_size, self.state_size, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """in_proj, convolution, x_proj, dt_proj, A, D, out_proj."""
        inner, rank = self.intermediate_size, self.time_step_rank or -(-hidden_size // 16)
        yield from linear("mixer", hidden_size, 2 * inner, units=inner, bias=self.proj_bias, module="in_proj")
        yield vector("mixer", inner * (self.conv_kernel + self.conv_bias), units=inner)
        yield from linear("mixer", inner, rank + 2 * self.state_size, units=inner, module="x_proj")
        yield from linear("mixer", rank, inner, units=inner, bias=True, module="dt_proj")
        yield vector("mixer", inner * (self.state_size + 1), units=inner)
        yield from linear("mixer", inner, hidden_size, units=inner, module="out_proj")
        if self.proj_bias:
            yield vector("mixer", hidden_size)
        if self.dt_norms:
            yield vector("norm", rank + 2 * self.state_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """State space duality: heads of head_dim x state_size, B and C shared by `n_groups` (arXiv 2405.21060).

    Of the weights: `gated_norm` before out_proj (Falcon-H1 may leave it out); `conv_bias`, `proj_bias` on in_proj and
    out_proj.
    """

    layer_type: ClassVar[str] = "mamba2"
    family: ClassVar[str] = "recurrent"
    kind: Literal["mamba2"] = "mamba2"
    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    gated_norm: bool = True
    conv_bias: bool = True
    proj_bias: bool = False

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns of x (by heads) and of B and C (by groups, copied below one per rank); the state."""
        columns = self.conv_kernel - 1
        return (
            CacheTensor("conv_state", self.num_heads, self.head_dim * columns, Fixed()),
            CacheTensor("conv_state", self.n_groups, 2 * self.state_size * columns, Fixed()),
            CacheTensor("recurrent_state", self.num_heads, self.head_dim * self.state_size, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """in_proj to z, x, B, C and dt; convolution; A, D, dt bias; gated norm; out_proj."""
        heads, groups = self.num_heads, self.n_groups
        inner, shared = heads * self.head_dim, 2 * groups * self.state_size
        yield from linear("mixer", hidden_size, 2 * inner + heads, units=heads, bias=self.proj_bias, module="in_proj")
        yield from linear("mixer", hidden_size, shared, units=groups, bias=self.proj_bias, module="in_proj")
        taps = self.conv_kernel + self.conv_bias
        yield vector("mixer", inner * taps, units=heads)
        yield vector("mixer", shared * taps, units=groups)
        yield vector("mixer", 3 * heads, units=heads)
        if self.gated_norm:
            yield vector("norm", inner, units=heads)
        yield from linear("mixer", inner, hidden_size, units=heads, module="out_proj")
        if self.proj_bias:
            yield vector("mixer", hidden_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv:
    """A gated short convolution (LFM2): only the last columns are kept. `bias`: on its convolution and projections."""

    layer_type: ClassVar[str] = "short_conv"
    family: ClassVar[str] = "recurrent"
    kind: Literal["short_conv"] = "short_conv"
    channels: int
    conv_kernel: int
    bias: bool = False

    def tensors(self) -> tuple[CacheTensor, ...]:
        """The last conv_kernel - 1 columns of every channel."""
        return (CacheTensor("conv_state", self.channels, self.conv_kernel - 1, Fixed()),)

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """in_proj to B, C and x; convolution; out_proj."""
        channels = self.channels
        yield from linear("mixer", hidden_size, 3 * channels, units=channels, bias=self.bias, module="in_proj")
        yield vector("mixer", channels * (self.conv_kernel + self.bias), units=channels)
        yield from linear("mixer", channels, hidden_size, units=channels, module="out_proj")
        if self.bias:
            yield vector("mixer", hidden_size)
