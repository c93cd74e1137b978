"""A weight tensor as what it costs: elements, the part of the model it belongs to, and how ranks share it.

The counterpart of `kvplan.cache.CacheTensor` for parameters: `units` can be shared out over tensor-parallel ranks
(heads, columns, vocabulary rows); a tensor of one unit is copied on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvplan.arith import cdiv

Part = Literal[
    "embedding", "position", "attention", "indexer", "compressor", "mixer", "mlp", "experts", "shared_experts",
    "router", "norm", "head", "encoder", "vision", "audio", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weight:
    """`numel` elements in `units` equal shares. `matrix`: a linear layer's weight, which quantization covers."""

    part: Part
    numel: int
    units: int = 1
    matrix: bool = True

    def numel_per_rank(self, tp: int) -> int:
        """Elements on the fullest of `tp` ranks."""
        return self.numel // self.units * cdiv(self.units, tp)


def linear(part: Part, inputs: int, outputs: int, *, units: int = 1, bias: bool = False) -> Iterator[Weight]:
    """A linear layer of `inputs` x `outputs`; the bias follows the sharing of the outputs."""
    yield Weight(part, inputs * outputs, units)
    if bias:
        yield Weight(part, outputs, units if outputs % units == 0 else 1, matrix=False)


def vector(part: Part, numel: int, *, units: int = 1) -> Weight:
    """A norm, a gate or another vector that stays in the model's dtype."""
    return Weight(part, numel, units, matrix=False)
