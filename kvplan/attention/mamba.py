"""State-space layers and short convolutions: one state for a session, whatever the context.

A causal convolution over `conv_kernel` tokens keeps the last conv_kernel - 1 columns. Shapes: vLLM
`layers/mamba/mamba_utils.py` (vllm.md section 1) and the transformers caches (hf_config_quirks.md section 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvplan.cache import CacheTensor, Fixed
from kvplan.matrix import Weight, linear, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Selective state space with one state of `state_size` per channel (arXiv 2312.00752)."""

    kind: Literal["mamba1"] = "mamba1"
    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int | None = None
    dt_norms: bool = False

    @property
    def layer_type(self) -> str:
        """mamba1."""
        return "mamba1"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns and the state; channels share out over ranks."""
        return (
            CacheTensor("conv_state", self.intermediate_size, self.conv_kernel - 1, Fixed()),
            CacheTensor("recurrent_state", self.intermediate_size, self.state_size, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """in_proj, convolution, x_proj, dt_proj, A, D, out_proj; `dt_norms`: Jamba's norms of dt, B and C."""
        inner, rank = self.intermediate_size, self.time_step_rank or -(-hidden_size // 16)
        yield from linear("mixer", hidden_size, 2 * inner, units=inner)
        yield vector("mixer", inner * (self.conv_kernel + 1), units=inner)
        yield from linear("mixer", inner, rank + 2 * self.state_size, units=inner)
        yield from linear("mixer", rank, inner, units=inner, bias=True)
        yield vector("mixer", inner * (self.state_size + 1), units=inner)
        yield from linear("mixer", inner, hidden_size, units=inner)
        if self.dt_norms:
            yield vector("norm", rank + 2 * self.state_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """State space duality: heads of head_dim x state_size, B and C shared by `n_groups` (arXiv 2405.21060)."""

    kind: Literal["mamba2"] = "mamba2"
    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int

    @property
    def layer_type(self) -> str:
        """mamba2."""
        return "mamba2"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Convolution columns of x (by heads) and of B and C (by groups, copied below one per rank); the state."""
        columns = self.conv_kernel - 1
        return (
            CacheTensor("conv_state", self.num_heads, self.head_dim * columns, Fixed()),
            CacheTensor("conv_state", self.n_groups, 2 * self.state_size * columns, Fixed()),
            CacheTensor("recurrent_state", self.num_heads, self.head_dim * self.state_size, Fixed()),
        )

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """in_proj to z, x, B, C and dt; convolution with bias; A, D, dt bias; gated norm; out_proj."""
        inner, shared = self.num_heads * self.head_dim, 2 * self.n_groups * self.state_size
        yield from linear("mixer", hidden_size, 2 * inner + self.num_heads, units=self.num_heads)
        yield from linear("mixer", hidden_size, shared, units=self.n_groups)
        yield vector("mixer", (inner + shared) * (self.conv_kernel + 1))
        yield vector("mixer", 3 * self.num_heads)
        yield vector("norm", inner)
        yield from linear("mixer", inner, hidden_size, units=self.num_heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv:
    """A gated short convolution (LFM2): only the last columns are kept."""

    kind: Literal["short_conv"] = "short_conv"
    channels: int
    conv_kernel: int

    @property
    def layer_type(self) -> str:
        """short_conv."""
        return "short_conv"

    @property
    def family(self) -> str:
        """recurrent."""
        return "recurrent"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """The last conv_kernel - 1 columns of every channel."""
        return (CacheTensor("conv_state", self.channels, self.conv_kernel - 1, Fixed()),)

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """in_proj to B, C and x; convolution; out_proj."""
        yield from linear("mixer", hidden_size, 3 * self.channels, units=self.channels)
        yield vector("mixer", self.channels * self.conv_kernel, units=self.channels)
        yield from linear("mixer", self.channels, hidden_size, units=self.channels)
