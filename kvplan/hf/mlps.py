"""What follows attention in each layer: dense or mixture of experts, and of what size."""

from __future__ import annotations

from kvplan.hf.fields import Fields
from kvplan.mlp import DenseMlp, Mlp, MoeMlp


def mlp_for(fields: Fields, layer: int) -> Mlp | None:
    """The MLP of one layer; None where the config does not size it."""
    experts = fields.count("num_experts", 0, least=0) or 0
    if experts > 1 and layer >= (fields.count("first_k_dense_replace", 0, least=0) or 0):
        return _moe(fields, experts)
    width = fields.count("intermediate_size")
    return DenseMlp(intermediate_size=width) if width else None


def _moe(fields: Fields, experts: int) -> Mlp | None:
    chosen = fields.count("num_experts_per_tok")
    width = fields.count("moe_intermediate_size") or fields.count("intermediate_size")
    if chosen is None or width is None:
        return None
    shared = (fields.count("n_shared_experts", 0, least=0) or 0) * width
    return MoeMlp(
        num_experts=experts, num_experts_per_tok=chosen, moe_intermediate_size=width, shared_intermediate_size=shared
    )
