"""How many parameters a model has, by part, and how many bytes one rank holds of them.

Parts that have no units to share (latent down projections, routers, norms, an indexer) are on every rank; KV heads are
copied where there are fewer of them than ranks; experts share out by their columns (TP) or whole (EP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from kvplan.matrix import Weight, vector
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec


def layer_weights(spec: ModelSpec, group: LayerGroup) -> Iterator[Weight]:
    """Weights of one layer of a group: mixers, MLP, and the vectors that belong to neither."""
    for attention in group.attention:
        yield from attention.weights(spec.hidden_size)
    if group.mlp:
        yield from group.mlp.weights(spec.hidden_size)
    if group.norm_elements:
        yield vector("norm", group.norm_elements)


def outer_weights(spec: ModelSpec) -> Iterator[Weight]:
    """Embedding, head, and what stands beside the layers (final norm, positions, encoders)."""
    table = spec.vocab_size * spec.hidden_size
    yield Weight("embedding", table, spec.vocab_size, matrix=False)
    if not spec.tie_word_embeddings:
        yield Weight("head", table, spec.vocab_size, matrix=False)
    for other in spec.other_weights:
        yield vector(other.part, other.numel)


@lru_cache(maxsize=512)
def params_by_part(spec: ModelSpec) -> dict[str, int]:
    """Parameters of the whole model by part, multi-token prediction left out."""
    parts: Counter[str] = Counter()
    for weight in outer_weights(spec):
        parts[weight.part] += weight.numel
    for group in spec.layer_groups:
        for weight in layer_weights(spec, group):
            parts[weight.part] += weight.numel * len(group.indices)
    return dict(parts)


def params_total(spec: ModelSpec) -> int:
    """All parameters."""
    return sum(params_by_part(spec).values())


def params_active(spec: ModelSpec) -> int:
    """Parameters that run for one token: of routed experts only those chosen."""
    idle = Fraction(0)
    for group in spec.layer_groups:
        if isinstance(group.mlp, MoeMlp):
            experts = sum(w.numel for w in group.mlp.weights(spec.hidden_size) if w.part == "experts")
            chosen = Fraction(group.mlp.num_experts_per_tok, group.mlp.num_experts)
            idle += len(group.indices) * experts * (1 - chosen)
    return params_total(spec) - int(idle)
