"""Rotary position embedding, interleaved, with YaRN: the positional part of an MLA key.

RoPE: arXiv 2104.09864. YaRN: arXiv 2309.00071, sections 3.2 to 3.4. DeepSeek rotates neighbouring elements
(2i, 2i + 1) as one complex number, and folds YaRN's temperature into the softmax scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """How far the rotary frequencies are stretched beyond the trained context, under HF's names.

    Frequencies that turn more than `beta_fast` times within the trained context stay; those that turn fewer than
    `beta_slow` times are divided by `factor`; between them a linear ramp blends the two.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 1.0
    mscale_all_dim: float = 1.0

    def gain(self, mscale: float) -> float:
        """YaRN's attention temperature, 0.1 x mscale x ln(factor) + 1."""
        return 1.0 if self.factor <= 1 else 0.1 * mscale * math.log(self.factor) + 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """A rotary embedding of `dim` elements with base `theta`."""

    dim: int
    theta: float = 10000.0
    yarn: Yarn | None = None

    @property
    def softmax_gain(self) -> float:
        """What the softmax scale is multiplied with: the temperature of every dimension, once for Q, once for K."""
        return self.yarn.gain(self.yarn.mscale_all_dim) ** 2 if self.yarn else 1.0

    @property
    def amplitude(self) -> float:
        """What cosine and sine are multiplied with: 1 where `mscale` equals `mscale_all_dim`, as in DeepSeek-V3."""
        return self.yarn.gain(self.yarn.mscale) / self.yarn.gain(self.yarn.mscale_all_dim) if self.yarn else 1.0

    def frequencies(self) -> Tensor:
        """Radians per token of each of the dim / 2 pairs, [dim / 2] float64."""
        plain = self.theta ** -(torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        if self.yarn is None:
            return plain
        stretched = self._stretched_share(self.yarn)
        return plain * (1 - stretched) + plain / self.yarn.factor * stretched

    def _stretched_share(self, yarn: Yarn) -> Tensor:
        """0 where a pair keeps its frequency, 1 where it is divided by the factor, a ramp between."""
        first = max(math.floor(self._pair_that_turns(yarn.beta_fast, yarn)), 0)
        last = min(math.ceil(self._pair_that_turns(yarn.beta_slow, yarn)), self.dim - 1)
        pairs = torch.arange(self.dim // 2, dtype=torch.float64)
        return ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)

    def _pair_that_turns(self, times: float, yarn: Yarn) -> float:
        """The (fractional) pair that turns `times` times within the trained context."""
        trained_tokens = yarn.original_max_position_embeddings
        return self.dim * math.log(trained_tokens / (times * 2 * math.pi)) / (2 * math.log(self.theta))

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn each pair of `x` [..., dim] by position x frequency; `positions` broadcasts to x.shape[:-1]."""
        angles = positions[..., None].to(torch.float64) * self.frequencies().to(x.device)
        turns = torch.polar(torch.full_like(angles, self.amplitude), angles)
        pairs = torch.view_as_complex(torch.unflatten(x.to(torch.float64), -1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)
