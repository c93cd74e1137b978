"""Structures around layers: norms that depend on the config, per-layer embeddings, hyper-connections, shared blocks."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.hf.fields import Fields
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec, OtherWeight


def parallel_norms(fields: Fields) -> int:
    """StableLM: one norm where attention and MLP read the same input."""
    return 1 if fields.flag("use_parallel_residual") else 2


def opt_norms(fields: Fields) -> int:
    """OPT: norms may have no weights at all."""
    return 2 if fields.flag("layer_norm_elementwise_affine", True) else 0


def falcon_norms(fields: Fields) -> int:
    """Falcon: one norm for attention and MLP side by side, two in the new architecture unless it says one."""
    if fields.flag("new_decoder_architecture"):
        return fields.count("num_ln_in_parallel_attn") or 2
    return 1 if fields.flag("parallel_attn", True) else 2


def peri_norms(fields: Fields) -> int:
    """HyperCLOVA X: norms after attention and MLP too."""
    return 4 if fields.flag("use_post_norm", True) else 2


def hyper_connections(fields: Fields, spec: ModelSpec, _group: LayerGroup) -> Iterator[OtherWeight]:
    """n residual streams, mixed before and after attention and MLP: a matrix of n x (n + 2) rows over all streams.

    Manifold-constrained hyper-connections (DeepSeek-V4; arXiv 2409.19606 for the idea).
    """
    streams = fields.count("hc_mult") or 4
    rows = streams * (streams + 2)
    yield OtherWeight(part="hyper_connection", numel=2 * (rows * streams * spec.hidden_size + rows + 3))


def hyper_head(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """What merges the streams before the head."""
    streams = fields.count("hc_mult") or 4
    yield OtherWeight(part="hyper_connection", numel=streams * streams * spec.hidden_size + streams + 1)


def _per_layer(fields: Fields) -> int:
    return fields.optional_size("hidden_size_per_layer_input", least=0) or 0


def per_layer_embedding(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Gemma-3n and 4: a second embedding with a slice for each layer, and its projection and norm."""
    dim = _per_layer(fields)
    if dim:
        rows = fields.count("vocab_size_per_layer_input") or spec.vocab_size
        width = spec.num_hidden_layers * dim
        yield OtherWeight(part="per_layer_embedding", numel=rows * width, units=rows)
        yield OtherWeight(part="per_layer_embedding", numel=width * spec.hidden_size + dim)


def _per_layer_gate(fields: Fields, spec: ModelSpec) -> OtherWeight:
    """In each layer: a gate down to the slice, a projection up, a norm."""
    dim = _per_layer(fields)
    return OtherWeight(part="per_layer_embedding", numel=(2 * dim + 1) * spec.hidden_size if dim else 0)


def gemma4_layer(fields: Fields, spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """The gate of per-layer embeddings; beside experts three more norms, and the router's scales."""
    yield _per_layer_gate(fields, spec)
    if isinstance(group.mlp, MoeMlp):
        yield OtherWeight(part="norm", numel=3 * spec.hidden_size)
        yield OtherWeight(part="router", numel=spec.hidden_size + group.mlp.num_experts)


def gemma3n_layer(fields: Fields, spec: ModelSpec, _group: LayerGroup) -> Iterator[OtherWeight]:
    """AltUp over n streams, LAuReL, and the gate of per-layer embeddings."""
    hidden, streams = spec.hidden_size, fields.count("altup_num_inputs") or 4
    rank = fields.count("laurel_rank") or 64
    yield OtherWeight(part="other", numel=(streams + 2) * hidden + streams**2 * (streams + 1))
    yield OtherWeight(part="other", numel=(2 * rank + 1) * hidden)
    yield _per_layer_gate(fields, spec)


def gemma3n_outer(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Per-layer embeddings, and the projections into and out of the other streams."""
    yield from per_layer_embedding(fields, spec)
    streams = fields.count("altup_num_inputs") or 4
    yield OtherWeight(part="other", numel=2 * (streams - 1) * spec.hidden_size**2)


def zamba_linear(_fields: Fields, spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """Each layer that calls a shared block projects its output with a matrix of its own."""
    if _shared(group) is not None:
        yield OtherWeight(part="mixer", numel=spec.hidden_size**2)


def _shared(group: LayerGroup) -> GroupedQueryAttention | None:
    return next((a for a in group.attention if isinstance(a, GroupedQueryAttention)), None)


def _calls(spec: ModelSpec) -> tuple[int, GroupedQueryAttention | None]:
    """How many layers call a shared block, and its attention."""
    calls = [(len(g.indices), attention) for g in spec.layer_groups if (attention := _shared(g)) is not None]
    return sum(n for n, _ in calls), calls[0][1] if calls else None


def _block(fields: Fields, spec: ModelSpec, attention: GroupedQueryAttention) -> Iterator[OtherWeight]:
    """Attention over hidden state and embedding side by side (2 x hidden_size), then a gated MLP."""
    hidden, inner = spec.hidden_size, fields.count("intermediate_size") or 0
    heads, dim = attention.num_attention_heads, attention.head_dim
    queries, keys = heads * dim, attention.num_key_value_heads * dim
    yield OtherWeight(part="attention", numel=hidden * (3 * queries + 4 * keys), units=heads)
    yield OtherWeight(part="mlp", numel=3 * hidden * inner, units=inner)
    yield OtherWeight(part="norm", numel=3 * hidden)


def zamba_block(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Zamba: one block for all calls."""
    _, attention = _calls(spec)
    if attention is not None:
        yield from _block(fields, spec, attention)


def zamba2_blocks(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Zamba 2: `num_mem_blocks` blocks in turn, and for each call low-rank adapters of the MLP, maybe of attention."""
    calls, attention = _calls(spec)
    if attention is None:
        return
    for _ in range(min(fields.count("num_mem_blocks") or 1, calls)):
        yield from _block(fields, spec, attention)
    rank, hidden, inner = fields.count("adapter_rank") or 128, spec.hidden_size, fields.count("intermediate_size") or 0
    yield OtherWeight(part="mlp", numel=calls * rank * (hidden + 2 * inner))
    if fields.flag("use_shared_attention_adapter"):
        yield OtherWeight(part="attention", numel=calls * 3 * rank * 4 * hidden)
