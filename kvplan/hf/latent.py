"""MLA and its sparse indexer, and DeepSeek-V4's attention compressed along the sequence.

`num_key_value_heads`, `head_dim` and `qk_head_dim` of an MLA config size nothing in the cache.
"""

from __future__ import annotations

from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.hf.fields import Fields
from kvplan.hf.softmax import Layer

_DECOYS = ("num_key_value_heads", "head_dim", "qk_head_dim", "mla_use_nope")


def mla(fields: Fields, _layer: int) -> Layer:
    """One latent and one rotary key for a token."""
    return (_mla(fields),)


def _mla(fields: Fields, **index: int | bool) -> MultiHeadLatentAttention:
    fields.explain(*_DECOYS)
    query = fields.need_size("num_attention_heads")
    rope = fields.size_from_zero("qk_rope_head_dim")
    value = fields.size("v_head_dim") or fields.need_size("hidden_size") // query
    return MultiHeadLatentAttention(
        num_attention_heads=query,
        kv_lora_rank=fields.need_size("kv_lora_rank"),
        qk_rope_head_dim=rope,
        qk_nope_head_dim=fields.need_size("qk_nope_head_dim"),
        v_head_dim=value,
        q_lora_rank=fields.size("q_lora_rank"),
        **index,  # type: ignore[arg-type]
    )


def sparse_mla(fields: Fields, layer: int) -> Layer:
    """MLA with an indexer; `indexer_types` names the layers that reuse another layer's selection."""
    types = fields.sequence("indexer_types") or ()
    shared = layer < len(types) and types[layer] == "shared"
    return (
        _mla(
            fields,
            index_head_dim=fields.need_size("index_head_dim"),
            index_n_heads=fields.need_size("index_n_heads"),
            index_topk=fields.need_size("index_topk"),
            index_pool=fields.count("index_kpool", 1) or 1,
            shares_index=shared,
        ),
    )


def compressed(fields: Fields, ratio: int) -> Layer:
    """A shared key-value record; `ratio` 0 keeps the window alone, 4 overlaps groups and has an indexer."""
    overlap = ratio == 4
    index = overlap and fields.has("index_head_dim")
    fields.explain("num_key_value_heads", "compress_rope_theta", "num_hash_layers", "index_n_heads", "index_topk")
    return (
        CompressedAttention(
            num_attention_heads=fields.need_size("num_attention_heads"),
            head_dim=fields.need_size("head_dim"),
            qk_rope_head_dim=fields.need_size("qk_rope_head_dim"),
            sliding_window=fields.need_size("sliding_window"),
            compress_ratio=ratio,
            compressor_overlap=overlap,
            q_lora_rank=fields.size("q_lora_rank"),
            o_lora_rank=fields.size("o_lora_rank"),
            o_groups=fields.size("o_groups"),
            index_head_dim=fields.size("index_head_dim") if index else None,
            index_n_heads=fields.size("index_n_heads") if index else None,
            index_topk=fields.size("index_topk") if index else None,
        ),
    )
