"""How a model is spread: a rank's heads, layers and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from kvplan.errors import BadInput

_AXES = ("tp", "pp", "dp", "dcp", "ep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Ranks along each axis.

    tp: tensor parallelism of attention (heads). pp: pipeline stages (layers). dp: replicas of attention that hold
    different sessions. dcp: decode context parallelism inside tp (the sequence). ep: expert parallelism, which leaves
    the cache alone.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for axis, value in zip(_AXES, (self.tp, self.pp, self.dp, self.dcp, self.ep), strict=True):
            if type(value) is not int or not 1 <= value <= 65536:
                raise BadInput(f"{axis}: {value!r} is not a number of ranks from 1 to 65536")
        if self.tp % self.dcp:
            raise BadInput(f"dcp: {self.dcp} does not divide tp {self.tp}; it shares the tensor-parallel ranks")

    @property
    def gpus(self) -> int:
        """GPUs in use: replicas x stages x tensor ranks."""
        return self.tp * self.pp * self.dp


SINGLE = Parallelism()
"""One rank."""


def stage_sizes(num_layers: int, pp: int) -> tuple[int, ...]:
    """Layers on each pipeline stage, as vLLM deals them: the remainder goes to the stages before the last.

    61 layers on 2 stages are 31 and 30; 80 on 3 are 27, 27 and 26 (vLLM `distributed/utils.get_pp_indices`).
    """
    if pp > num_layers:
        raise BadInput(f"pp: {pp} stages for {num_layers} layers; use at most {num_layers}")
    sizes = [num_layers // pp] * pp
    for i in range(2, num_layers % pp + 2):
        sizes[-i] += 1
    return tuple(sizes)


def stage_layers(num_layers: int, pp: int) -> tuple[range, ...]:
    """The layer indices of each stage."""
    bounds = [0]
    for size in stage_sizes(num_layers, pp):
        bounds.append(bounds[-1] + size)
    return tuple(range(a, b) for a, b in pairwise(bounds))
