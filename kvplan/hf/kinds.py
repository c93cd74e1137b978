"""Which rule reads which model_type: the table of families.

A family says which type each layer has (`Types`), what each type builds (`Maker`s), and which keys it explains that
size nothing. Models of one cause share one line; nothing here knows a single file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.none import NoCache
from kvplan.hf import crossed, heads, latent, patterns, recurrent, sharing, windows
from kvplan.hf.fields import Fields
from kvplan.hf.locate import squash
from kvplan.hf.patterns import HYBRID, LINEAR, MLP, MOE, NO_OP, REPLACED, renamed
from kvplan.hf.softmax import Layer, Maker, attention, full, sliding, softmax
from kvplan.hf.windows import FULL, SLIDING, Types, every, full_every, listed

Sharing = Callable[[Fields, Sequence[str], Sequence[Layer]], list[Layer]]


@dataclass(frozen=True, slots=True)
class Family:
    """How to read the layers of some model_types.

    `explains`: keys, or beginnings of keys that end in `*`. `has_mlp`: whether anything follows the mixers of a layer.
    """

    types: Types
    kinds: Mapping[str, Maker]
    explains: tuple[str, ...] = ()
    sharing: Sharing | None = None
    has_mlp: bool = True

    def layers(self, fields: Fields) -> list[Layer]:
        """What every layer runs, in order."""
        fields.explain("num_attention_heads", "num_key_value_heads", *self.explains)
        beginnings = tuple(key.removesuffix("*") for key in self.explains if key.endswith("*"))
        fields.explain(*(key for key in fields.raw if beginnings and key.startswith(beginnings)))
        types = self.types(fields)
        for layer_type in types:
            if layer_type not in self.kinds:
                known = ", ".join(self.kinds)
                raise fields.bad(
                    fields.key("layer_types"), f"gives a layer {layer_type!r}; this model_type has {known}"
                )
        layers = [self.kinds[t](fields.at(i), i) for i, t in enumerate(types)]
        return layers if self.sharing is None else self.sharing(fields, types, layers)


def _nothing(reason: str) -> Maker:
    return lambda _fields, _layer: (NoCache(reason=reason),)  # type: ignore[arg-type]


def _block_sparse(fields: Fields, layer: int) -> Layer:
    """MiniMax-M3: GQA kept whole, and one index key for a token to choose blocks by."""
    base = attention(fields, heads.standard(fields, layer))
    section = fields.section("sparse_attention_config")
    if section is None:
        dim, blocks, size = (fields.need_size(k) for k in ("index_head_dim", "index_topk_blocks", "index_block_size"))
        fields.explain("index_n_heads", "index_local_blocks")
    else:
        dim, blocks, size = (section.need(f"sparse_{k}") for k in ("index_dim", "topk_blocks", "block_size"))
        section.explain(*section.raw)
    return (
        GroupedQueryAttention(
            num_attention_heads=base.num_attention_heads,
            num_key_value_heads=base.num_key_value_heads,
            head_dim=base.head_dim,
            index_head_dim=dim,
            index_topk=blocks * size,
        ),
    )


def _sparse_types(fields: Fields) -> list[str]:
    if not fields.has("sparse_attention_config"):
        return listed(every(FULL))(fields)
    return patterns.marked("sparse_attention_freq", _SPARSE, FULL, section="sparse_attention_config")(fields)


def _decilm(fields: Fields, layer: int) -> Layer:
    block = patterns.attention_block(fields, layer)
    query = fields.need_size("num_attention_heads")
    kv = query // block.need("n_heads_in_group")
    own = heads.Heads(query, kv, heads.head_dim(fields, query))
    return (attention(fields, own, window=block.count("window_length")),)


def _bailing_full(fields: Fields, layer: int) -> Layer:
    return latent.mla(fields, layer) if fields.has("kv_lora_rank") else full()(fields, layer)


def _bailing_linear(fields: Fields, layer: int) -> Layer:
    """Ling 2.5 runs lightning attention; version 3 has short convolutions: Kimi Delta Attention over its heads."""
    if not fields.has("short_conv_kernel_size"):
        return recurrent.lightning(fields, layer)
    own = {"linear_num_heads": fields.need("num_attention_heads"), "linear_head_dim": fields.need("head_dim")}
    return recurrent.kda(
        fields.overlaid({**own, "linear_conv_kernel_dim": fields.need("short_conv_kernel_size")}), layer
    )


_SPARSE = "minimax_m3_sparse"
_BLOCK_SPARSE_KEYS = (
    "dense_attention_every_n_layers", "blocksparse_block_size", "blocksparse_num_local_blocks",
    "blocksparse_vert_stride", "blocksparse_homo_head_pattern", "blocksparse_triton_kernel_block_size",
)  # fmt: skip
"""Phi-3-small: which blocks a sparse layer reads; every token is stored."""
_BLOCK_INDEX_KEYS = ("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks", "index_local_blocks")
_SOFTMAX = softmax()
_LINEAR_GQA = {FULL: full(), SLIDING: sliding()}
_MAMBA2 = {LINEAR: recurrent.mamba2, FULL: full()}
_MLA_KDA = {FULL: latent.mla, LINEAR: recurrent.kda}

PLAIN = Family(listed(windows.never), _SOFTMAX)
"""Full attention on every layer, unless `layer_types` says otherwise."""
_PLAIN_NAMES = """
    apertus aquila arcee aria_text baichuan bailing_moe bailing_moe_v2 biogpt bloom codegen cohere cwm deepseek dots_ocr
    ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text ernie4_5_moe_vl exaone flex_olmo gemma glm glm4 glm4_moe glm4v glm4v_text
    glm4v_moe_text glm_ocr_text gpt2 gpt_neox gpt_neox_japanese gptj granite granitemoe granitemoeshared helium
    hunyuan_v1_dense hyperclovax hy_v3 internlm internlm2 internlm3 iquestcoder jais jais2 llama mellum mimo
    molmo muse_glimmer_text nanochat nemotron olmo olmo2 olmoe openai-gpt opt orion paddleocr_vl_text persimmon
    phi phi-msft qwen qwen3_vl_text qwen3_vl_moe_text qwen3_omni_moe_text qwen3_asr_text sarvam_moe seed_oss solar_open
    stablelm stablelm_epoch telechat telechat2 telechat3 xglm xverse yi
"""
_WINDOWED = Family(listed(windows.slides_everywhere), _SOFTMAX)
_QWEN = Family(listed(windows.slides_late), _SOFTMAX)
_GEMMA3 = Family(listed(full_every(6)), _SOFTMAX, ("global_local_attention_pattern",))
_GEMMA4 = Family(listed(full_every(6)), softmax(heads.global_heads, heads.standard), (), sharing.share_last)
_MLA = Family(every(FULL), {FULL: latent.mla})
_DSA = Family(latent.every_indexed, {latent.INDEXED: latent.sparse_mla})
_V4 = Family(
    latent.compressed_types,
    {str(ratio): latent.compressed(ratio) for ratio in (0, 1, 2, 4, 128)},
    ("engram_*", "dspark_*"),
)
_DELTANET = Family(
    listed(full_every(4, key="full_attention_interval", bounded=LINEAR)),
    {LINEAR: recurrent.gated_deltanet, FULL: full()},
)
_MAMBA_LISTED = Family(renamed(listed(patterns.attention_indices(LINEAR))), _MAMBA2, ("attn_layer_indices",))
_NEMOTRON_H = Family(patterns.blocks, {**_MAMBA2, MLP: _nothing("mlp"), MOE: _nothing("moe")})
_MINIMAX = Family(
    renamed(listed(patterns.marked("attn_type_list", FULL, LINEAR))), {FULL: full(), LINEAR: recurrent.lightning}
)
_BART = Family(crossed.decoder_layers, {FULL: crossed.bart_layer})
_T5 = Family(crossed.decoder_layers, {FULL: crossed.t5_layer}, ("relative_attention_num_buckets",))


def _each(names: str, family: Family) -> dict[str, Family]:
    return dict.fromkeys(names.split(), family)


FAMILIES: Mapping[str, Family] = {
    **_each(_PLAIN_NAMES, PLAIN),
    **_each("mistral mixtral phi3 phi3_v phi4mm phi4_multimodal phimoe starcoder2 ministral ministral3", _WINDOWED),
    **_each(
        "qwen2 qwen2_moe qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text qwen3 qwen3_moe", _QWEN
    ),
    **_each("dots1 smollm3 minicpmv minicpmo", _QWEN),
    **_each("gemma3_text gemma3", _GEMMA3),
    **_each("gemma4_text gemma4 gemma4_unified_text", _GEMMA4),
    **_each("gemma3n_text gemma3n", Family(listed(full_every(5)), _SOFTMAX, (), sharing.share_last)),
    **_each("exaone4 exaone_moe olmo3", Family(listed(full_every(4)), _SOFTMAX)),
    "afmoe": Family(listed(full_every(4, key="global_attn_every_n_layers")), _SOFTMAX),
    "cohere2": Family(listed(full_every(4, other="layer_switch")), _SOFTMAX, ("order_of_interleaved_layers",)),
    **_each("gemma2 gpt_oss vaultgemma", Family(listed(windows.alternating), _SOFTMAX)),
    **_each("llama4_text llama4", Family(listed(patterns.rope_marks), _SOFTMAX)),
    **_each("falcon refinedweb refinedwebmodel", Family(every(FULL), {FULL: full(heads.falcon)})),
    "minicpm": Family(listed(every(FULL)), _SOFTMAX, ("sparse_config",)),
    "gpt_bigcode": Family(every(FULL), {FULL: full(heads.multi_query)}),
    **_each("chatglm codeshell", Family(every(FULL), {FULL: full(heads.grouped_query)})),
    **_each("dbrx mpt", Family(every(FULL), {FULL: full(heads.attn_config)})),
    "gpt_neo": Family(patterns.local_and_global, {FULL: full(), SLIDING: sliding(key="window_size")}),
    "laguna": Family(listed(every(FULL)), softmax(heads.query_by_layer)),
    "cohere2_moe": Family(listed(windows.unlisted), _SOFTMAX, ("prefix_dense_sliding_window_pattern",)),
    "phi3small": Family(every(FULL), {FULL: full()}, _BLOCK_SPARSE_KEYS),
    **_each("openelm deci", Family(every(FULL), {FULL: full(heads.per_layer_lists)}, ("num_gqa_groups",))),
    **_each("step3_text step3", Family(every(FULL), {FULL: full(heads.one_group)})),
    **_each(
        "step3p5 step3p7",
        Family(
            listed(every(FULL)),
            softmax(heads.standard, heads.step_sliding),
            ("num_sliding_attention_heads", "attention_other_setting"),
        ),
    ),
    **_each(
        "hunyuan hunyuan_v1_moe", Family(every(FULL), {FULL: full()}, ("cla_share_factor",), sharing.share_neighbours)
    ),
    **_each(
        "nemotron-nas nemotron_nas",
        Family(
            patterns.decilm_blocks,
            {
                FULL: _decilm,
                SLIDING: _decilm,
                NO_OP: _nothing("no_op attention"),
                REPLACED: _nothing("linear replacement"),
            },
        ),
    ),
    **_each(
        "mimo_v2_flash mimo_v2",
        Family(
            listed(patterns.marked("hybrid_layer_pattern", SLIDING, FULL), "hybrid_layer_pattern"),
            {FULL: full(heads.wide_value), SLIDING: sliding(heads.swa_heads)},
            ("attention_chunk_size",),
        ),
    ),
    **_each(
        "minimax_m3_vl_text minimax_m3_vl minimax_m3 minimax_m3_sparse",
        Family(_sparse_types, {FULL: full(), _SPARSE: _block_sparse}, _BLOCK_INDEX_KEYS),
    ),
    "minimax_m2": Family(every(FULL), {FULL: full()}, ("attn_type_list",)),
    **_each("minimax_m1 minimax_text_01 minimax_text01 minimax", _MINIMAX),
    **_each("deepseek_v2 deepseek_v3 kimi_k2 glm4_moe_lite axk1 youtu sarvam_mla mistral4 pangu_ultra_moe", _MLA),
    **_each("deepseek_vl_v2 deepseek_vl2", _MLA),
    "minicpm3": Family(every(FULL), {FULL: latent.mla_of_hidden}),
    "longcat_flash": Family(every(FULL), {FULL: recurrent.beside(latent.mla, latent.mla)}, ("zero_expert_num",)),
    **_each("deepseek_v32 glm_moe_dsa axk2 hy_v4 hy_v4_vl_text mistral_large4_text", _DSA),
    **_each("deepseek_v4 deepseek_v41 deepseek_ref", _V4),
    **_each("qwen3_next qwen3_5_text qwen3_5 qwen3_5_moe_text qwen3_5_moe olmo_hybrid", _DELTANET),
    **_each("kimi_linear kimi_k3", Family(listed(patterns.linear_attn_lists(1), "linear_attn_config"), _MLA_KDA)),
    **_each(
        "glm5_next_text glm5_next",
        Family(
            renamed(
                listed(patterns.linear_attn_lists(0)),
                {FULL: latent.INDEXED, "deepseek_sparse_attention": latent.INDEXED},
            ),
            {latent.INDEXED: latent.sparse_mla, LINEAR: recurrent.kda},
        ),
    ),
    **_each(
        "bailing_hybrid bailing_moe_linear bailing_moe_v2_5",
        Family(
            listed(full_every(4, key="layer_group_size", bounded=LINEAR), "layer_group_size"),
            {FULL: _bailing_full, LINEAR: _bailing_linear},
        ),
    ),
    **_each("nemotron_h", _NEMOTRON_H),
    **_each("bamba granitemoehybrid", _MAMBA_LISTED),
    "falcon_h1": Family(every(HYBRID), {HYBRID: recurrent.beside(full(), recurrent.mamba2)}, ("attn_layer_indices",)),
    "jamba": Family(renamed(listed(patterns.attention_period)), {LINEAR: recurrent.mamba1_expanded, FULL: full()}),
    "zamba": Family(
        patterns.zamba_blocks,
        {LINEAR: recurrent.mamba1_expanded, HYBRID: recurrent.beside(full(heads.zamba), recurrent.mamba1_expanded)},
        ("attn_layer_period", "attn_layer_offset", "num_hidden_layers"),
    ),
    "zamba2": Family(
        patterns.hybrid_ids,
        {LINEAR: recurrent.mamba2, HYBRID: recurrent.beside(full(heads.zamba), recurrent.mamba2)},
        ("layers_block_type", "use_shared_attention_adapter", "shared_attention_adapter"),
    ),
    **_each("mamba falcon_mamba", Family(every(LINEAR), {LINEAR: recurrent.mamba1}, has_mlp=False)),
    "mamba2": Family(every(LINEAR), {LINEAR: recurrent.mamba2_pure}, has_mlp=False),
    **_each("rwkv5 rwkv6 rwkv7", Family(every(LINEAR), {LINEAR: recurrent.rwkv}, ("rescale_every",))),
    **_each(
        "lfm2 lfm2_moe",
        Family(
            listed(patterns.attention_indices("conv"), "full_attn_idxs"),
            {FULL: full(), "conv": recurrent.short_conv},
            ("conv_L_cache",),
        ),
    ),
    "lara_mini": Family(listed(every(FULL)), {**_LINEAR_GQA, LINEAR: recurrent.gated_deltanet}),
    "lfm3": Family(listed(every(FULL)), {**_LINEAR_GQA, "conv": recurrent.short_conv}),
    **_each("bart mbart m2m_100 marian pegasus plbart blenderbot blenderbot-small whisper", _BART),
    **_each("t5 mt5 umt5", _T5),
    **_each(
        "mllama_text_model mllama",
        Family(crossed.marked_layers, {FULL: full(), crossed.CROSS: crossed.image_layer}),
    ),
}
_BY_SQUASHED = {squash(name): name for name in FAMILIES}


def known_type(name: str) -> str | None:
    """The model_type of the table that a model_type or an architecture spells otherwise, or None."""
    if name in FAMILIES:
        return name
    squashed = squash(name)
    return (
        _BY_SQUASHED.get(squashed)
        or _BY_SQUASHED.get(squashed.removesuffix("text"))
        or _BY_SQUASHED.get(squashed + "text")
    )
