"""What follows attention in a layer: a dense MLP, a mixture of experts, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kvplan.matrix import Part, Weight, linear


def _projections(part: Part, hidden_size: int, inner: int, *, gated: bool, bias: bool, count: int = 1) -> Iterator[Weight]:
    """Up (and gate) and down projections of `count` equal MLPs; columns share out over ranks."""
    for _ in range(2 if gated else 1):
        yield from linear(part, hidden_size, inner * count, units=inner, bias=bias)
    yield from linear(part, inner * count, hidden_size, units=inner)
    if bias:
        yield Weight(part, hidden_size * count, matrix=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Up (and gate) projection, activation, down projection."""

    kind: Literal["dense"] = "dense"
    intermediate_size: int
    gated: bool = True
    bias: bool = False

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Its matrices."""
        return _projections("mlp", hidden_size, self.intermediate_size, gated=self.gated, bias=self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Routed experts of which `num_experts_per_tok` run for a token, and shared experts that always run.

    `shared_gate`: a learned gate on the shared experts (Qwen MoE). `router_bias`: a bias per expert in the router or
    beside it (DeepSeek-V3's correction bias). `expert_hidden_size`: where experts work in a narrower space than the
    model's (latent MoE of Nemotron-3), with a projection down and one up.
    """

    kind: Literal["moe"] = "moe"
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_intermediate_size: int = 0
    gated: bool = True
    bias: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    expert_hidden_size: int | None = None

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Experts, shared experts, router."""
        width = self.expert_hidden_size or hidden_size
        yield from _projections(
            "experts", width, self.moe_intermediate_size, gated=self.gated, bias=self.bias, count=self.num_experts
        )
        if self.expert_hidden_size:
            yield from linear("router", hidden_size, width)
            yield from linear("router", width, hidden_size)
        if self.shared_intermediate_size:
            shared = self.shared_intermediate_size
            yield from _projections("shared_experts", hidden_size, shared, gated=self.gated, bias=self.bias)
        if self.shared_gate:
            yield Weight("router", hidden_size, matrix=False)
        yield Weight("router", hidden_size * self.num_experts, matrix=False)
        if self.router_bias:
            yield Weight("router", self.num_experts, matrix=False)


Mlp: TypeAlias = DenseMlp | MoeMlp
