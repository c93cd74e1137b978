"""What follows attention in a layer: a dense MLP, a mixture of experts, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kvplan.matrix import Part, Weight, linear, vector


def _projections(part: Part, hidden_size: int, inner: int, *, gated: bool, bias: bool) -> Iterator[Weight]:
    """Up (and gate) and down projections; columns share out over ranks."""
    for module in ("gate_proj", "up_proj") if gated else ("up_proj",):
        yield from linear(part, hidden_size, inner, units=inner, bias=bias, module=module)
    yield from linear(part, inner, hidden_size, units=inner, module="down_proj")
    if bias:
        yield vector(part, hidden_size)


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

    `shared_intermediate_size`: width of the shared experts together, or of a dense MLP that runs beside the routed ones
    (Gemma 4, LongCat-Flash). `bias`: of routed experts (gpt-oss). `shared_gate`: a learned gate on the shared experts
    (Qwen MoE). `router_bias`: a bias per expert in the router or beside it. `expert_hidden_size`: where experts work in
    a narrower space than the model's (latent MoE of Nemotron-3), with a projection down and one up.
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
        for weight in _projections("experts", width, self.moe_intermediate_size, gated=self.gated, bias=self.bias):
            yield replace(weight, numel=weight.numel * self.num_experts, experts=self.num_experts)
        if self.expert_hidden_size:
            yield from linear("router", hidden_size, width, module="latent_proj")
            yield from linear("router", width, hidden_size, module="latent_proj")
        if self.shared_intermediate_size:
            shared = self.shared_intermediate_size
            yield from _projections("shared_experts", hidden_size, shared, gated=self.gated, bias=False)
        if self.shared_gate:
            yield vector("router", hidden_size)
        yield vector("router", hidden_size * self.num_experts)
        if self.router_bias:
            yield vector("router", self.num_experts)


Mlp: TypeAlias = DenseMlp | MoeMlp
