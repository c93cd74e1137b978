"""State-space layers and short convolutions: one state for a session, whatever the context.

A causal convolution over `conv_kernel` tokens keeps the last conv_kernel - 1 columns. Shapes: vLLM
`layers/mamba/mamba_utils.py` (vllm.md section 1) and the transformers caches (hf_config_quirks.md section 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvplan.cache import CacheTensor, Fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1:
    """Selective state space with one state of `state_size` per channel (arXiv 2312.00752)."""

    kind: Literal["mamba1"] = "mamba1"
    intermediate_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int | None = None

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
