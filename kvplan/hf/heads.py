"""How many heads of what width softmax attention keeps: the standard rule, and what families do otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kvplan.errors import BadInput
from kvplan.hf.fields import Fields


@dataclass(frozen=True, slots=True)
class Heads:
    """Query heads, KV heads, and the width of a K and of a V head (None: as K)."""

    query: int
    kv: int
    dim: int
    v_dim: int | None = None


HeadRule: TypeAlias = Callable[[Fields, int], Heads]
"""Reads the heads of one layer."""


def head_dim(fields: Fields, query_heads: int) -> int:
    """`head_dim`, else hidden_size / num_attention_heads, which must divide."""
    stated = fields.size("head_dim")
    if stated:
        return stated
    if "head_dim" in fields.defaults:
        raise fields.bad(
            "head_dim", f"cannot be null in this model_type; its class assumes {fields.defaults['head_dim']}"
        )
    hidden = fields.need_size("hidden_size")
    if hidden % query_heads:
        raise BadInput(
            f"{fields.where}: hidden_size {hidden} is no multiple of {query_heads} heads; head_dim is absent"
        )
    return hidden // query_heads


def _heads(fields: Fields, kv: int | None) -> Heads:
    query = fields.need_size("num_attention_heads")
    if kv is None and query > 1:
        fields.note(f"no KV head count is stated: {query}, one for each query head (MHA)")
    kv = kv or query
    if kv > query or query % kv:
        raise fields.bad("num_key_value_heads", f"{kv} KV heads cannot serve {query} query heads")
    return Heads(query, kv, head_dim(fields, query))


def standard(fields: Fields, _layer: int) -> Heads:
    """`num_key_value_heads`, or as many as query heads where it is absent or null (MHA)."""
    return _heads(fields, fields.size("num_key_value_heads"))


def falcon(fields: Fields, _layer: int) -> Heads:
    """`num_kv_heads` in the new decoder architecture (multi_query is set there too); else multi_query means one."""
    fields.explain("multi_query", "num_key_value_heads", "num_kv_heads", "n_head_kv")
    new = fields.flag("new_decoder_architecture") or fields.has("n_head_kv")
    if new:
        return _heads(fields, fields.count("num_key_value_heads"))
    one = fields.flag("multi_query", True)
    if one and fields.count("num_key_value_heads", 1) not in (1, fields.need_size("num_attention_heads")):
        raise fields.bad("new_decoder_architecture", "is not true, yet num_kv_heads is neither one nor all heads")
    return _heads(fields, 1 if one else None)


def multi_query(fields: Fields, _layer: int) -> Heads:
    """GPT-BigCode: one KV head unless `multi_query` is false; true is the class default."""
    fields.explain("num_key_value_heads")
    return _heads(fields, 1 if fields.flag("multi_query", True) else None)


def grouped_query(fields: Fields, _layer: int) -> Heads:
    """ChatGLM: `multi_query_group_num` KV heads, where `multi_query_attention` is on; CodeShell likewise."""
    groups = fields.count("multi_query_group_num") or fields.count("num_query_groups")
    flags = ("multi_query_attention", "group_query_attention")
    if groups and not any(fields.has(f) for f in flags):
        raise fields.bad("multi_query_attention", "missing, though a number of query groups is stated")
    grouped = any(fields.flag(f) for f in flags)
    return _heads(fields, groups if grouped else None)


def attn_config(fields: Fields, _layer: int) -> Heads:
    """DBRX and MPT: `attn_config.kv_n_heads`, else by `attn_type`."""
    section = fields.section("attn_config")
    if section is None:
        return _heads(fields, None)
    by_type = 1 if section.text("attn_type") == "multiquery_attention" else None
    return _heads(fields, section.count("kv_n_heads") or by_type)


def swa_heads(fields: Fields, layer: int) -> Heads:
    """Sliding layers with KV heads of their own under `swa_` names; other figures may be as in full layers."""
    base = wide_value(fields, layer)
    return Heads(
        fields.count("swa_num_attention_heads") or base.query,
        fields.need("swa_num_key_value_heads"),
        fields.count("swa_head_dim") or base.dim,
        fields.count("swa_v_head_dim") or base.v_dim,
    )


def wide_value(fields: Fields, layer: int) -> Heads:
    """V heads of another width than K heads (`v_head_dim`)."""
    base = standard(fields, layer)
    return Heads(base.query, base.kv, base.dim, fields.count("v_head_dim"))


def global_heads(fields: Fields, layer: int) -> Heads:
    """Gemma-4's full layers: wider heads, and fewer KV heads where K and V come of one projection."""
    base = standard(fields, layer)
    if fields.has("per_layer_config"):
        return base
    kv = fields.count("num_global_key_value_heads") if fields.flag("attention_k_eq_v", True) else None
    fields.explain("num_global_key_value_heads")
    return Heads(base.query, kv or base.kv, fields.size("global_head_dim") or base.dim)


def query_by_layer(fields: Fields, layer: int) -> Heads:
    """Laguna: `num_attention_heads_per_layer` query heads over the same KV heads."""
    counts = fields.sequence("num_attention_heads_per_layer")
    if not counts or layer >= len(counts):
        return standard(fields, layer)
    return standard(fields.overlaid({"num_attention_heads": counts[layer]}), layer)


def zamba(fields: Fields, _layer: int) -> Heads:
    """The shared block sees twice the hidden size: heads of 2 x hidden / heads."""
    query = fields.need_size("num_attention_heads")
    fields.explain("kv_channels", "attention_hidden_size", "num_query_groups")
    dim = fields.one_count("attention_head_dim") or 2 * fields.need_size("hidden_size") // query
    return Heads(query, fields.count("num_key_value_heads") or query, dim)


def one_group(fields: Fields, _layer: int) -> Heads:
    """Step-3's multi-matrix factorisation: `num_attention_groups` KV heads, one by default."""
    fields.explain("share_q_dim")
    return _heads(fields, fields.count("num_key_value_heads") or 1)


def step_sliding(fields: Fields, layer: int) -> Heads:
    """Step-3.5: sliding layers may have more query heads, under either of two spellings."""
    base = standard(fields, layer)
    other = fields.section("attention_other_setting")
    if other is not None:
        other.explain("attention_type", "true_head_dim")
        kv = other.count("num_attention_groups") or other.count("num_key_value_heads") or base.kv
        return Heads(other.count("num_attention_heads") or base.query, kv, other.count("head_dim") or base.dim)
    return Heads(fields.count("num_sliding_attention_heads") or base.query, base.kv, base.dim)


def per_layer_lists(fields: Fields, layer: int) -> Heads:
    """OpenELM and DeciLM-7B: a list with one entry for each layer."""
    lists = {
        "num_attention_heads": fields.sequence("num_query_heads"),
        "num_key_value_heads": fields.sequence("num_kv_heads") or fields.sequence("num_key_value_heads_per_layer"),
    }
    for name, values in lists.items():
        if values is not None and layer >= len(values):
            raise BadInput(f"{fields.where}: {name}: the list by layer ends before layer {layer}")
    return standard(fields.overlaid({name: values[layer] for name, values in lists.items() if values}), layer)
