"""A weight tensor as what it costs: elements, the part of the model it belongs to, and how ranks share it.

The counterpart of `kvplan.cache.CacheTensor` for parameters: `units` can be shared out over tensor-parallel ranks
(heads, columns, vocabulary rows); a tensor of one unit is copied on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvplan.arith import cdiv, round_up

Part = Literal[
    "embedding", "position", "attention", "indexer", "compressor", "mixer", "mlp", "experts", "shared_experts",
    "router", "norm", "head", "per_layer_embedding", "hyper_connection", "encoder", "vision", "audio", "mtp", "rotary",
    "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weight:
    """`numel` elements in `units` equal shares, of which engines round the number up to a multiple of `align`.

    `matrix`: a linear layer's weight, which quantization covers. `inputs`: elements of one of its rows (0: unknown).
    `module`: its name inside the part, as checkpoints spell it. `experts`: of how many whole experts it is made.
    """

    part: Part
    numel: int
    units: int = 1
    matrix: bool = True
    inputs: int = 0
    module: str = ""
    experts: int = 0
    align: int = 1

    @property
    def name(self) -> str:
        """Part and module: attention.o_proj."""
        return f"{self.part}.{self.module}"

    def numel_per_rank(self, tp: int, ep: int = 1, *, tile: tuple[int, int] = (1, 1)) -> int:
        """Elements on the fullest of `tp` ranks; of routed experts on the fullest of `ep` ranks that hold them whole,
        each expert's sides (its width, and its columns on a rank) rounded up to multiples of `tile`."""
        if not self.experts:
            return self.numel // self.units * cdiv(round_up(self.units, self.align), tp)
        experts, columns = (cdiv(self.experts, ep), self.units) if ep > 1 else (self.experts, cdiv(self.units, tp))
        side = self.numel // (self.experts * self.units)
        return (
            experts * round_up(side, tile[0] if self.matrix else 1) * round_up(columns, tile[1] if self.matrix else 1)
        )


def linear(
    part: Part, inputs: int, outputs: int, *, units: int = 1, bias: bool = False, module: str = ""
) -> Iterator[Weight]:
    """A linear layer of `inputs` x `outputs`; the bias follows the sharing of the outputs."""
    yield Weight(part, inputs * outputs, units, inputs=inputs, module=module)
    if bias:
        yield Weight(part, outputs, units if outputs % units == 0 else 1, matrix=False)


def vector(part: Part, numel: int, *, units: int = 1) -> Weight:
    """A norm, a gate or another vector that stays in the model's dtype."""
    return Weight(part, numel, units, matrix=False)
