"""What follows attention in each layer: dense or mixture of experts, and of what size."""

from __future__ import annotations

from kvplan.hf import patterns
from kvplan.hf.fields import Fields
from kvplan.mlp import DenseMlp, Mlp, MoeMlp

_LISTED = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_expert")
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
_SPARSE_WORDS = ("sparse", "moe", "hash_moe")


def mlp_for(fields: Fields, layer: int) -> Mlp | None:
    """The MLP of one layer; None where the layer has none or the config does not size it."""
    if fields.has("hybrid_override_pattern") or _is_block_list(fields):
        return {patterns.MOE: _moe, patterns.MLP: _dense}.get(patterns.blocks(fields)[layer], _none)(fields, layer)
    if _is_sparse(fields, layer):
        return _moe(fields, layer)
    if fields.has("num_experts_per_tok") and not _experts(fields.section("ffn_config") or fields):
        fields.note("experts are chosen for a token, but their number is not stated: MLPs are not sized")
        return None
    return _dense(fields, layer)


def _is_block_list(fields: Fields) -> bool:
    words = fields.sequence("layers_block_type") or ()
    return any(w in (patterns.MOE, patterns.MLP) for w in words)


def _none(_fields: Fields, _layer: int) -> None:
    return None


def _dense(fields: Fields, layer: int) -> Mlp | None:
    for name in ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "ff_intermediate_size"):
        width = _entry(fields, name, layer)
        if width:
            return DenseMlp(intermediate_size=width)
    return None


def _entry(fields: Fields, name: str, layer: int) -> int | None:
    """A width, or this layer's entry of a list of widths (Gemma-3n)."""
    widths = fields.value(name)
    if isinstance(widths, list) and layer < len(widths):
        return fields.overlaid({name: widths[layer]}).count(name)
    return fields.optional_size(name)


def _moe(fields: Fields, layer: int) -> Mlp | None:
    at = _at_layer(fields.section("ffn_config") or fields, layer)
    experts, chosen = _experts(at), _first(at, "num_experts_per_tok")
    width = _first(at, "moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "intermediate_size")
    if not experts or chosen is None or width is None:
        return None
    shared = _first(
        at, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
        "share_expert_dim",
    )  # fmt: skip
    if shared is None:
        shared = width * (_first(at, *_SHARED_COUNTS) or 0)
    return MoeMlp(
        num_experts=experts, num_experts_per_tok=chosen, moe_intermediate_size=width, shared_intermediate_size=shared
    )


def _at_layer(fields: Fields, layer: int) -> Fields:
    """Lists of figures of experts: by layer (Hunyuan), or one for text and one for images (Ernie VL)."""
    layers = fields.size("num_hidden_layers") or 0
    lists = {name: v for name in _LISTED if isinstance(v := fields.value(name), list) and v}
    return fields.overlaid(
        {n: v[layer] if len(v) > max(layer, 2) or layers == len(v) else v[0] for n, v in lists.items()}
    )


def _experts(fields: Fields) -> int:
    return fields.count("num_experts", 0, least=0) or 0


def _first(fields: Fields, *names: str) -> int | None:
    """The first of several counts that is there."""
    return next((n for name in names if (n := fields.count(name, least=0)) is not None), None)


def _is_sparse(fields: Fields, layer: int) -> bool:
    """Whether a layer routes tokens to experts: by list, by period, or beyond the first dense layers."""
    if not _experts(fields.section("ffn_config") or fields):
        return False
    for name in ("mlp_layer_types", "moe_layer_freq"):
        marks = fields.value(name)
        if isinstance(marks, list) and layer < len(marks):
            return marks[layer] in (1, *_SPARSE_WORDS)
    listed = fields.indices("moe_layers")
    if listed is not None:
        return layer in listed
    return layer >= _first_sparse(fields) and _on_period(fields, layer)


def _first_sparse(fields: Fields) -> int:
    return _first(fields, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index") or 0


def _on_period(fields: Fields, layer: int) -> bool:
    if layer in (fields.indices("mlp_only_layers") or ()):
        return False
    for name, offset in (("decoder_sparse_step", 1), ("interleave_moe_layer_step", 1), ("moe_layer_freq", 0)):
        step = fields.count(name)
        if step and (layer + offset) % step:
            return False
    period = fields.count("expert_layer_period")
    return not period or layer % period == (fields.count("expert_layer_offset", 0, least=0) or 0)
