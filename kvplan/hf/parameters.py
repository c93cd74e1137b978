"""The parameters of an imported model: what its family and its config say of weights, filled into the spec.

A pass of its own after the import: it changes no figure of the cache. Of a model_type that the table of traits does not
know, the count stays an estimate from standard keys, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvplan.attention import Attention
from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.attention.none import SharedCache
from kvplan.hf.defaults import class_defaults
from kvplan.hf.encoders import encoder_weights
from kvplan.hf.fields import Fields
from kvplan.hf.rotary import rotary_tables
from kvplan.hf.traits import DEFAULT, TRAITS, Flag, Key, Traits
from kvplan.layers import layer_ranges
from kvplan.mlp import DenseMlp, Mlp, MoeMlp
from kvplan.model import LayerGroup, ModelSpec, OtherWeight

_LATENT = ("moe_latent_size", "routed_expert_hidden_size")


def with_parameters(spec: ModelSpec, decoder: Mapping[str, Any], wrapper: Mapping[str, Any]) -> ModelSpec:
    """The spec with its weights: `decoder` is the config that the layers were read from, `wrapper` the whole file.

    `BadInput`, one line that names file and key, where a size or a flag of weights is damaged.
    """
    nested = decoder is not wrapper
    top = Fields(wrapper, spec.source)
    fields = Fields(
        decoder, spec.source, defaults=class_defaults(spec.model_type), wrapper=top if nested else None
    )  # fmt: skip
    traits = TRAITS.get(spec.model_type)
    if traits is None:
        fields.note(f"parameters of model_type {spec.model_type!r} are estimated from its standard keys")
    reader = _Reader(fields, spec, traits or DEFAULT)
    outer = [*reader.outer(), *encoder_weights(fields, top, spec), *rotary_tables(fields, spec)]
    return replace(
        spec,
        layer_groups=reader.groups(spec.layer_groups),
        mtp=tuple(reader.mtp(group) for group in spec.mtp),
        other_weights=_merged(outer),
        notes=(*spec.notes, *(n for n in fields.notes if n not in spec.notes)),
    )


class _Reader:
    """The traits of one family, applied to one config."""

    def __init__(self, fields: Fields, spec: ModelSpec, traits: Traits) -> None:
        self.fields = fields
        self.spec = spec
        self.traits = traits
        count = traits.norms if isinstance(traits.norms, int) else traits.norms(fields)
        self.norm_size = spec.hidden_size * (2 if self.flag(traits.norm_bias) else 1)
        self.norm_elements = count * self.norm_size

    def flag(self, flag: Flag) -> bool:
        """A fixed flag, one that the config states, or one that a rule reads."""
        if isinstance(flag, Key):
            return self.fields.flag(flag.name, flag.default)
        return flag if isinstance(flag, bool) else flag(self.fields)

    def groups(self, groups: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
        """All layers with their weights, alike ones together again in the order of their first."""
        members: dict[LayerGroup, list[int]] = {}
        layers = sorted((i, group) for group in groups for i in group.indices)
        for index, group in layers:
            members.setdefault(replace(self.layer(group, index), layers="0"), []).append(index)
        return tuple(replace(group, layers=layer_ranges(indices)) for group, indices in members.items())

    def layer(self, group: LayerGroup, index: int) -> LayerGroup:
        """One layer of a group."""
        whole = replace(
            group,
            attention=tuple(self.mixer(a) for a in group.attention),
            mlp=self.mlp(group.mlp, index),
            norm_elements=self.norm_elements,
        )
        more = (w for rule in self.traits.layer for w in rule(self.fields, self.spec, whole))
        return replace(whole, other_weights=_merged(more))

    def mtp(self, group: LayerGroup) -> LayerGroup:
        """Layers of the prediction module, each with the projection of state and embedding and its three norms."""
        whole = self.layer(group, self.spec.num_hidden_layers - 1)
        hidden = self.spec.hidden_size
        joint = OtherWeight(part="mtp", numel=2 * hidden * hidden + 3 * self.norm_size)
        return replace(whole, layers=group.layers, other_weights=(*whole.other_weights, joint))

    def mixer(self, attention: Attention) -> Attention:
        """An attention kind with its biases, norms and gates."""
        if isinstance(attention, SharedCache):
            source = self.mixer(attention.source)
            if isinstance(source, GroupedQueryAttention | MultiHeadLatentAttention):
                return replace(attention, source=source)
            return attention
        if isinstance(attention, GroupedQueryAttention):
            attention = self._heads(attention)
        elif isinstance(attention, MultiHeadLatentAttention | CrossAttention):
            attention = replace(attention, bias=self.flag(self.traits.qkv_bias))
        return self.traits.mixers(self.fields, attention) if self.traits.mixers else attention

    def _heads(self, attention: GroupedQueryAttention) -> GroupedQueryAttention:
        traits = self.traits
        return replace(
            attention,
            qkv_bias=self.flag(traits.qkv_bias),
            o_bias=self.flag(traits.o_bias),
            qk_norm=traits.qk_norm if traits.qk_norm != "none" and self.flag(traits.qk_norm_if) else "none",
            output_gate=self.flag(traits.output_gate),
        )

    def mlp(self, mlp: Mlp | None, index: int) -> Mlp | None:
        """A layer's MLP with its width, biases and gates."""
        traits = self.traits
        if not traits.has_mlp:
            return None
        if isinstance(mlp, MoeMlp):
            return self._moe(mlp)
        width = traits.width(self.fields, self.spec, index) if traits.width else mlp and mlp.intermediate_size
        if not width:
            if not self._may_lack_mlp():
                self.fields.note("the config does not size every MLP: those are not counted")
            return None
        return DenseMlp(intermediate_size=width, gated=self.flag(traits.gated), bias=self.flag(traits.mlp_bias))

    def _may_lack_mlp(self) -> bool:
        """Whether the config itself gives layers without one (Nemotron-H, DeciLM)."""
        return any(self.fields.has(key) for key in ("hybrid_override_pattern", "layers_block_type", "block_configs"))

    def _moe(self, mlp: MoeMlp) -> MoeMlp:
        traits = self.traits
        latent = next((size for key in _LATENT if (size := self.fields.count(key))), None)
        mlp = replace(
            mlp,
            gated=self.flag(traits.gated),
            bias=traits.expert_bias,
            shared_gate=bool(mlp.shared_intermediate_size) and self.flag(traits.shared_gate),
            router_bias=self.flag(traits.router_bias),
            expert_hidden_size=latent,
        )
        return traits.moe(self.fields, self.spec, mlp) if traits.moe else mlp

    def outer(self) -> Iterator[OtherWeight]:
        """Final norm, bias of the head, learned positions, and what the family's rules add."""
        spec, traits = self.spec, self.traits
        if self.norm_elements and self.flag(traits.final_norm):
            yield OtherWeight(part="norm", numel=self.norm_size)
        if self.flag(traits.head_bias):
            yield OtherWeight(part="head", numel=spec.vocab_size, units=spec.vocab_size or 1)
        if traits.positions is not None and spec.max_position_embeddings:
            yield OtherWeight(
                part="position", numel=(spec.max_position_embeddings + traits.positions) * spec.hidden_size
            )
        for rule in traits.outer:
            yield from rule(self.fields, spec)


def _merged(weights: Iterable[OtherWeight]) -> tuple[OtherWeight, ...]:
    """Weights of one part that ranks share alike, together; empty ones left out."""
    totals: dict[OtherWeight, int] = {}
    for weight in weights:
        key = replace(weight, numel=0)
        totals[key] = totals.get(key, 0) + weight.numel
    return tuple(replace(key, numel=numel) for key, numel in totals.items() if numel)
