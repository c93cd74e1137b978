"""What follows attention in a layer: a dense MLP, a mixture of experts, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Up (and gate) projection, activation, down projection."""

    kind: Literal["dense"] = "dense"
    intermediate_size: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Routed experts of which `num_experts_per_tok` run for a token, and shared experts that always run."""

    kind: Literal["moe"] = "moe"
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int = 0
    gated: bool = True
    bias: bool = False


Mlp: TypeAlias = DenseMlp | MoeMlp
