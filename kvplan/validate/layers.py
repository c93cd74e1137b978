"""Which layers of a model are run: its MLA layers, and the same layers as MHA, GQA and MQA."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, TypeAlias

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.errors import Unsupported
from kvplan.model import LayerGroup, ModelSpec

Heads: TypeAlias = GroupedQueryAttention | MultiHeadLatentAttention
_WITHOUT_INDEXER: dict[str, Any] = {
    "index_head_dim": None,
    "index_n_heads": None,
    "index_topk": None,
    "index_pool": 1,
    "shares_index": False,
}


def latent_layers(spec: ModelSpec) -> ModelSpec:
    """The model's MLA layers alone, without sparse indexers, as one group: what `validate` runs."""
    layers = Counter[MultiHeadLatentAttention]()
    for count, attention in spec.mixers():
        if isinstance(attention, MultiHeadLatentAttention):
            layers[replace(attention, **_WITHOUT_INDEXER)] += count
    if not layers:
        raise Unsupported(
            f"{spec.name} has {spec.attention_family} attention; validate decodes MLA, such as deepseek-v3"
        )
    if len(layers) > 1:
        raise Unsupported(
            f"{spec.name}: its MLA layers are of {len(layers)} shapes; validate runs models that have one"
        )
    [(attention, count)] = layers.items()
    return replace(spec, layer_groups=(LayerGroup(layers=f"0-{count - 1}", attention=(attention,)),))


def left_out(spec: ModelSpec) -> list[str]:
    """What of a model `latent_layers` leaves out, for the reader."""
    notes = []
    if any(tensor.role == "index_k" for group in spec.layer_groups for tensor in group.tensors()):
        notes.append("Decode is dense: the keys of the sparse indexer are left out.")
    others = [name for name in spec.layers_by_kind() if not name.startswith("mla")]
    if others:
        notes.append(f"Only the MLA layers are run; {', '.join(others)} are left out.")
    return notes


def latent_attention_of(spec: ModelSpec) -> MultiHeadLatentAttention:
    """The attention of `latent_layers`."""
    attention = only_attention(spec)
    if not isinstance(attention, MultiHeadLatentAttention):
        raise Unsupported(f"{spec.name} has {attention.family} attention; validate decodes MLA, such as deepseek-v3")
    return attention


def only_attention(spec: ModelSpec) -> Heads:
    """The attention of `latent_layers`, or of a variant of them with heads."""
    [group] = spec.layer_groups
    [attention] = group.attention
    if isinstance(attention, GroupedQueryAttention | MultiHeadLatentAttention):
        return attention
    raise Unsupported(f"{spec.name}: validate runs MHA, GQA, MQA and MLA, not {attention.layer_type}")


def with_layers(spec: ModelSpec, layers: int) -> ModelSpec:
    """The first `layers` layers of a model of one group."""
    [group] = spec.layer_groups
    return replace(spec, layer_groups=(replace(group, layers=f"0-{layers - 1}"),))


def head_kinds(spec: ModelSpec) -> tuple[str, ...]:
    """MHA, GQA and MQA as variants of a model; GQA-8, or with the most KV heads below 8 that its heads can share."""
    heads = only_attention(spec).num_attention_heads
    return "mha", f"gqa:{max(n for n in range(1, 9) if heads % n == 0)}", "mqa"
