"""MLA, its sparse indexer and its sharing between layers; DeepSeek-V4's attention compressed along the sequence.

`num_key_value_heads`, `head_dim` and `qk_head_dim` of an MLA config size nothing in the cache.
"""

from __future__ import annotations

from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.attention.none import SharedCache
from kvplan.hf.fields import Fields
from kvplan.hf.heads import standard
from kvplan.hf.softmax import Layer, Maker, attention
from kvplan.hf.windows import every

INDEXED = "indexed_attention"
CSA, HCA, WINDOW = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
_DECOYS = ("num_key_value_heads", "head_dim", "qk_head_dim", "mla_use_nope", "use_mla", "attention_method")


def mla(fields: Fields, layer: int) -> Layer:
    """One latent and one rotary key for a token; plain heads where the config switches MLA off (DeepSeek-OCR)."""
    if fields.raw.get("use_mla") is False:
        fields.explain(*_DECOYS, "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank")
        return (attention(fields, standard(fields, layer)),)
    return (_mla(fields),)


def mla_of_hidden(fields: Fields, layer: int) -> Layer:
    """MiniCPM3 states no `v_head_dim`: it is hidden_size / num_attention_heads."""
    value = fields.need_size("hidden_size") // fields.need_size("num_attention_heads")
    return mla(fields.overlaid({"v_head_dim": value}), layer)


def _mla(fields: Fields, **index: int | bool) -> MultiHeadLatentAttention:
    fields.explain(*_DECOYS)
    query = fields.need_size("num_attention_heads")
    return MultiHeadLatentAttention(
        num_attention_heads=query,
        kv_lora_rank=fields.need_size("kv_lora_rank"),
        qk_rope_head_dim=fields.size_from_zero("qk_rope_head_dim"),
        qk_nope_head_dim=fields.need_size("qk_nope_head_dim"),
        v_head_dim=fields.need_size("v_head_dim"),
        q_lora_rank=fields.optional_size("q_lora_rank"),
        **index,  # type: ignore[arg-type]
    )


def sparse_mla(fields: Fields, layer: int) -> Layer:
    """MLA with an indexer of its own, or one that reuses another layer's selection; or all of another layer's cache."""
    own = _mla(
        fields,
        index_head_dim=fields.need_size("index_head_dim"),
        index_n_heads=fields.need_size("index_n_heads"),
        index_topk=fields.need_size("index_topk"),
        index_pool=fields.optional_size("index_kpool") or 1,
        shares_index=_shares_index(fields, layer),
    )
    sources = fields.sequence("kv_source_layers")
    if sources and layer < len(sources) and sources[layer] != layer:
        return (SharedCache(source=own),)
    return (own,)


def _shares_index(fields: Fields, layer: int) -> bool:
    """`indexer_types`, else the letters of `index_topk_pattern`, else one full indexer in every `index_topk_freq`."""
    types = fields.sequence("indexer_types")
    pattern = fields.value("index_topk_pattern")
    every_n = fields.count("index_topk_freq", 1) or 1
    offset = fields.count("index_skip_topk_offset", 2, least=0) or 0
    if types is None and isinstance(pattern, str | list):
        types = [{"F": "full", "S": "shared"}.get(p, p) for p in pattern]
    if types is None:
        return max(layer - offset + 1, 0) % every_n != 0
    if layer >= len(types) or types[layer] not in ("full", "shared"):
        raise fields.bad("indexer_types", f"says neither full nor shared for layer {layer}")
    return bool(types[layer] == "shared")


def every_indexed(fields: Fields) -> list[str]:
    """All layers are indexed MLA, under whatever name a list gives them."""
    fields.explain("layer_types", "layers_block_type")
    return every(INDEXED)(fields)


def compressed_types(fields: Fields) -> list[str]:
    """The ratio of each layer, as text: from `compress_ratios` (cut to the decoder), or `layer_types` and rates."""
    layers = fields.need_size("num_hidden_layers")
    ratios = fields.sequence("compress_ratios")
    if ratios is None:
        types = fields.sequence("layer_types")
        if types is None:
            raise fields.bad("compress_ratios", "is missing; nothing else says how each layer compresses")
        rates = _rates(fields)
        ratios = [rates.get(t) if isinstance(t, str) else None for t in types]
    fields.explain("layer_types", "compress_rates", "compress_rate_csa", "compress_rate_hca", "layers_block_type")
    if len(ratios) < layers or not all(isinstance(r, int) and 0 <= r <= 2**16 for r in ratios):
        raise fields.bad("compress_ratios", f"is not a list of {layers} ratios")
    return [str(r) for r in ratios[:layers]]


def _rates(fields: Fields) -> dict[str, int]:
    section = fields.section("compress_rates") or Fields({}, fields.where)
    csa = section.count(CSA) or fields.count("compress_rate_csa", 4) or 4
    hca = section.count(HCA) or fields.count("compress_rate_hca", 128) or 128
    return {WINDOW: 0, CSA: csa, HCA: hca}


def compressed(ratio: int) -> Maker:
    """A shared key-value record in a window, and compressed by `ratio` beyond it.

    DeepSeek-V4: ratio 4 overlaps neighbouring groups and selects with an indexer (CSA); 128 does neither (HCA).
    V4.1: only `kv_source_layer_ids` hold compressed records (and the index keys made of them), ratio 1 or 2.
    """

    def maker(fields: Fields, layer: int) -> Layer:
        fields.explain("num_key_value_heads", "compress_rope_theta", "index_n_heads", "index_topk", *_CANDIDATES)
        sources, indexers = fields.indices("kv_source_layer_ids"), fields.indices("index_source_layer_ids")
        owns = sources is None or layer in sources
        indexed = ratio > 0 and (ratio == 4 if indexers is None else owns and layer in indexers)
        record = CompressedAttention(
            num_attention_heads=fields.need_size("num_attention_heads"),
            head_dim=fields.need_size("head_dim"),
            qk_rope_head_dim=fields.need_size("qk_rope_head_dim"),
            sliding_window=fields.need_size("sliding_window"),
            compress_ratio=ratio,
            compressor_overlap=ratio == 4,
            owns_entries=owns,
            index_from_latent=indexed and sources is not None,
            q_lora_rank=fields.optional_size("q_lora_rank"),
            o_lora_rank=fields.optional_size("o_lora_rank"),
            o_groups=fields.optional_size("o_groups"),
            index_head_dim=fields.need_size("index_head_dim") if indexed else None,
            index_n_heads=fields.count("index_n_heads") if indexed else None,
            index_topk=fields.count("index_topk") if indexed else None,
        )
        return (record,)

    return maker


_CANDIDATES = ("candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size", "num_hash_layers")
