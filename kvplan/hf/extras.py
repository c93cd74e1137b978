"""Small parameters that few families have: gates, biases and norms that no attention kind declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.hf.fields import Fields
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec, OtherWeight

LayerRule = Callable[[Fields, ModelSpec, LayerGroup], Iterator[OtherWeight]]


def head_gate(key: str, default: bool) -> LayerRule:
    """One gate for each query head, where `key` (a flag, or the word per-head) says so."""

    def rule(fields: Fields, spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
        stated = fields.value(key)
        if not (default if stated is None else stated):
            return
        for attention in group.attention:
            if isinstance(attention, GroupedQueryAttention):
                heads = attention.num_attention_heads
                yield OtherWeight(part="attention", numel=spec.hidden_size * heads, units=heads)

    return rule


def mla_head_gate(_fields: Fields, spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """One output gate for each head of a latent attention layer (Ling 3)."""
    for attention in group.attention:
        if isinstance(attention, MultiHeadLatentAttention):
            heads = attention.num_attention_heads
            yield OtherWeight(part="attention", numel=spec.hidden_size * heads, units=heads)


def mla_output_gate(fields: Fields, spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """A gate of every element of a latent attention layer's output (Kimi-K3)."""
    for attention in group.attention:
        if isinstance(attention, MultiHeadLatentAttention) and fields.flag("mla_use_output_gate"):
            heads = attention.num_attention_heads
            yield OtherWeight(part="attention", numel=spec.hidden_size * heads * attention.v_head_dim, units=heads)


def latent_norm(fields: Fields, _spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """A norm of what latent experts read (Kimi-K3)."""
    if isinstance(group.mlp, MoeMlp) and group.mlp.expert_hidden_size and fields.flag("latent_moe_use_norm"):
        yield OtherWeight(part="norm", numel=group.mlp.expert_hidden_size)


def head_layer_norms(key: str, default: bool) -> LayerRule:
    """LayerNorms with bias on the heads of Q and K, where `key` says so (Phi, Persimmon)."""

    def rule(fields: Fields, _spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
        for attention in group.attention:
            if isinstance(attention, GroupedQueryAttention) and fields.flag(key, default):
                yield OtherWeight(part="norm", numel=4 * attention.head_dim)

    return rule


def rwkv_channel_mix(fields: Fields, spec: ModelSpec, _group: LayerGroup) -> Iterator[OtherWeight]:
    """RWKV's receptance of the channel mix; in version 6 the low-rank shifts and decays too (arXiv 2404.05892)."""
    hidden = spec.hidden_size
    yield OtherWeight(part="mlp", numel=hidden**2)
    if spec.model_type == "rwkv6":
        shift, decay = (64, 128) if hidden >= 4096 else (32, 64)
        yield OtherWeight(part="mixer", numel=2 * hidden * (5 * shift + decay))
    if spec.model_type == "rwkv7":
        fields.note("the low-rank adapters of RWKV-7 are not counted")


def xielu(_fields: Fields, _spec: ModelSpec, _group: LayerGroup) -> Iterator[OtherWeight]:
    """The two learned slopes of Apertus's activation."""
    yield OtherWeight(part="mlp", numel=2)


def zero_experts(fields: Fields, spec: ModelSpec, _group: LayerGroup) -> Iterator[OtherWeight]:
    """LongCat-Flash: experts that return their input take a row of the router and nothing else."""
    rows = fields.count("zero_expert_num", 0, least=0) or 0
    yield OtherWeight(part="router", numel=rows * spec.hidden_size)


def ernie_vision_experts(fields: Fields, spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """ERNIE-VL: as many experts again for image tokens, narrower, with a router of their own."""
    sizes = fields.value("moe_intermediate_size")
    if isinstance(group.mlp, MoeMlp) and isinstance(sizes, list) and len(sizes) > 1 and isinstance(sizes[1], int):
        experts = group.mlp.num_experts
        yield OtherWeight(part="experts", numel=3 * experts * sizes[1] * spec.hidden_size, units=sizes[1])
        yield OtherWeight(part="router", numel=experts * (spec.hidden_size + 1))


def whisper_biases(_fields: Fields, spec: ModelSpec, _group: LayerGroup) -> Iterator[OtherWeight]:
    """Whisper: biases of Q and V in self attention; of Q, V and the output in cross attention."""
    yield OtherWeight(part="attention", numel=5 * spec.hidden_size)


def mllama_gates(_fields: Fields, _spec: ModelSpec, group: LayerGroup) -> Iterator[OtherWeight]:
    """Llama-3.2-Vision: cross-attention layers scale attention and MLP by a learned number each."""
    if any(isinstance(a, CrossAttention) for a in group.attention):
        yield OtherWeight(part="attention", numel=2)


def mllama_rows(_fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Llama-3.2-Vision: eight more embedding rows than the head has."""
    yield OtherWeight(part="embedding", numel=8 * spec.hidden_size)


def embedding_norm(_fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A LayerNorm after the embedding (BLOOM, BART)."""
    yield OtherWeight(part="norm", numel=2 * spec.hidden_size)


def dense_bias(_fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """GPT-NeoX Japanese: an output bias in the last layer alone."""
    yield OtherWeight(part="attention", numel=spec.hidden_size)
