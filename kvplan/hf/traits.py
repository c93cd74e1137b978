"""What a model_type says of its parameters: biases, norms, gates, widths, and what else its layers hold.

Facts of the transformers 5.24 classes and, for model_types that it lacks, of the modelling files beside their weights.
A flag is fixed by the class or read from a key of the config, with the class's default where the key is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kvplan.attention import Attention
from kvplan.hf import blocks, extras, mixers, seq2seq, widths
from kvplan.hf.fields import Fields
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec, OtherWeight


@dataclass(frozen=True, slots=True)
class Key:
    """A flag of the config and what its absence means."""

    name: str
    default: bool = False


Flag: TypeAlias = bool | Key | Callable[[Fields], bool]
MixerRule: TypeAlias = Callable[[Fields, Attention], Attention]
MoeRule: TypeAlias = Callable[[Fields, ModelSpec, MoeMlp], MoeMlp]
WidthRule: TypeAlias = Callable[[Fields, ModelSpec, int], int | None]
LayerRule: TypeAlias = Callable[[Fields, ModelSpec, LayerGroup], Iterable[OtherWeight]]
OuterRule: TypeAlias = Callable[[Fields, ModelSpec], Iterable[OtherWeight]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The parameters of one family.

    `norms` of hidden_size elements in a layer, twice as many with `norm_bias`. `qk_norm` where `qk_norm_if`. `width`:
    the MLP's where the importer's reading is not it. `positions`: rows of a learned table beyond the longest context.
    `mixers`, `moe` complete what a layer runs; `layer`, `outer` add what no other field can say.
    """

    qkv_bias: Flag = Key("attention_bias")
    o_bias: Flag = Key("attention_bias")
    mlp_bias: Flag = Key("mlp_bias")
    gated: Flag = True
    has_mlp: bool = True
    norms: int | Callable[[Fields], int] = 2
    norm_bias: Flag = False
    final_norm: Flag = True
    head_bias: Flag = False
    qk_norm: Literal["none", "head", "all"] = "none"
    qk_norm_if: Flag = True
    output_gate: Flag = False
    shared_gate: Flag = False
    expert_bias: bool = False
    router_bias: Flag = False
    positions: int | None = None
    width: WidthRule | None = None
    mixers: MixerRule | None = None
    moe: MoeRule | None = None
    layer: tuple[LayerRule, ...] = ()
    outer: tuple[OuterRule, ...] = ()


DEFAULT = Traits()
"""Llama: biases by `attention_bias` and `mlp_bias`, two RMS norms, a gated MLP."""
_NO_BIAS = Traits(qkv_bias=False, o_bias=False, mlp_bias=False)
_ALL_BIAS = Traits(qkv_bias=True, o_bias=True, mlp_bias=True)
_QWEN2 = replace(_NO_BIAS, qkv_bias=True)
_QWEN3 = replace(DEFAULT, qk_norm="head", mlp_bias=False)
_DELTANET = replace(_QWEN3, output_gate=True, shared_gate=True)
_GLM = replace(_NO_BIAS, qkv_bias=Key("attention_bias", True))
_GLM4 = replace(_GLM, norms=4)
_GPT2 = replace(_ALL_BIAS, gated=False, norm_bias=True, width=widths.four_times, positions=0)
_GPTJ = replace(_GPT2, qkv_bias=False, o_bias=False, norms=1, head_bias=True, positions=None)
_GEMMA2 = replace(DEFAULT, norms=4, mlp_bias=False)
_GEMMA3 = replace(_GEMMA2, qk_norm="head")
_BAILING = replace(
    DEFAULT, qkv_bias=Key("use_qkv_bias"), o_bias=Key("use_bias"), mlp_bias=Key("use_bias"), qk_norm="head",
    qk_norm_if=Key("use_qk_norm"), router_bias=Key("moe_router_enable_expert_bias"),
)  # fmt: skip
_ERNIE = replace(
    DEFAULT, qkv_bias=Key("use_bias"), o_bias=Key("use_bias"), mlp_bias=Key("use_bias"), head_bias=Key("use_bias"),
    router_bias=True,
)  # fmt: skip
_HUNYUAN = replace(DEFAULT, qk_norm="head", mlp_bias=False, qk_norm_if=Key("use_qk_norm", True), moe=widths.same_shared)
_MAMBA = replace(_NO_BIAS, has_mlp=False, norms=1, mixers=mixers.mamba("use_conv_bias", "use_bias"))
_ZAMBA = replace(_NO_BIAS, has_mlp=False, norms=1, mixers=mixers.zamba, layer=(blocks.zamba_linear,))
_BAMBA = replace(DEFAULT, mixers=mixers.mamba("mamba_conv_bias", "mamba_proj_bias"))
_BART = replace(_ALL_BIAS, gated=False, norms=3, norm_bias=True, final_norm=False, width=widths.stated)
_T5 = replace(_NO_BIAS, gated=seq2seq.is_gated, norms=3, width=widths.stated, outer=(seq2seq.t5_encoder,))
_STEP = replace(_NO_BIAS, qk_norm="head", layer=(extras.head_gate("use_head_wise_attn_gate", True),))
_HYPER = replace(DEFAULT, layer=(blocks.hyper_connections,), outer=(blocks.hyper_head,))


def _each(names: str, traits: Traits) -> dict[str, Traits]:
    return dict.fromkeys(names.split(), traits)


TRAITS: Mapping[str, Traits] = {
    **_each(
        """llama mistral ministral ministral3 mixtral granite granitemoe granitemoeshared cwm aria_text smollm3 gemma
        vaultgemma yi aquila minicpm deepseek minimax minimax_m1 minimax_text_01 minimax_text01 solar solar_open exaone
        xverse iquestcoder mimo_v2""",
        DEFAULT,
    ),
    **_each(
        """minicpm3 deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm4_moe_lite glm_moe_dsa mistral4
        youtu axk1 sarvam_mla pangu_ultra_moe deepseek_vl_v2 deepseek_vl2""",
        replace(DEFAULT, mlp_bias=False),
    ),
    **_each(
        "kimi_linear kimi_k3",
        replace(
            DEFAULT, mlp_bias=False, mixers=mixers.kimi_kda, layer=(extras.mla_output_gate, extras.latent_norm)
        ),
    ),
    **_each("phi3 phi3_v phi4mm phi4_multimodal baichuan", _NO_BIAS),
    **_each("qwen2 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text mimo", _QWEN2),
    **_each("minicpmv minicpmo", replace(_QWEN2, qkv_bias=Key("attention_bias", True))),
    "qwen": replace(_QWEN2, width=widths.halved),
    "qwen2_moe": replace(_QWEN2, qkv_bias=Key("qkv_bias", True), shared_gate=True),
    **_each("qwen3 qwen3_moe qwen3_vl_text qwen3_vl_moe_text qwen3_omni_moe_text qwen3_asr_text dots1 mellum", _QWEN3),
    **_each("hy_v3 sarvam_moe", _QWEN3),
    **_each("exaone4 exaone_moe", replace(_NO_BIAS, qk_norm="head")),
    **_each("qwen3_next qwen3_5_text qwen3_5 qwen3_5_moe_text qwen3_5_moe", _DELTANET),
    "internlm": replace(_NO_BIAS, qkv_bias=Key("bias", True), o_bias=Key("bias", True)),
    "internlm2": replace(_NO_BIAS, qkv_bias=Key("bias"), o_bias=Key("bias")),
    "internlm3": replace(DEFAULT, qkv_bias=Key("qkv_bias"), o_bias=Key("bias"), mlp_bias=Key("bias")),
    "orion": replace(_NO_BIAS, norm_bias=True),
    "chatglm": replace(
        DEFAULT, qkv_bias=Key("add_qkv_bias"), o_bias=Key("add_bias_linear"), mlp_bias=Key("add_bias_linear"),
        final_norm=Key("post_layer_norm", True),
    ),
    "glm": _GLM,
    **_each("glm4 glm4v glm4v_text glm_ocr_text", _GLM4),
    "glm_ocr_text": replace(_GLM4, qkv_bias=False),
    **_each(
        "glm4_moe glm4v_moe_text",
        replace(_GLM, qkv_bias=Key("attention_bias"), qk_norm="head", qk_norm_if=Key("use_qk_norm")),
    ),
    "gemma2": _GEMMA2,
    **_each("gemma3 gemma3_text", _GEMMA3),
    **_each("gemma3n gemma3n_text", replace(_GEMMA3, layer=(blocks.gemma3n_layer,), outer=(blocks.gemma3n_outer,))),
    **_each(
        "gemma4 gemma4_text gemma4_unified_text",
        replace(
            _GEMMA3, mixers=mixers.gemma4, width=widths.gemma4, moe=widths.same_shared, layer=(blocks.gemma4_layer,),
            outer=(blocks.per_layer_embedding,),
        ),
    ),
    "olmo": replace(DEFAULT, norms=0, final_norm=False, mlp_bias=False),
    **_each("olmo2 olmo3 flex_olmo olmoe olmo_hybrid", replace(DEFAULT, qk_norm="all", mlp_bias=False)),
    "cohere": replace(DEFAULT, norms=1, qk_norm="all", qk_norm_if=Key("use_qk_norm"), mlp_bias=False),
    "cohere2": replace(DEFAULT, norms=1, mlp_bias=False),
    "apertus": replace(DEFAULT, mlp_bias=False, gated=False, qk_norm="head", layer=(extras.xielu,)),
    "arcee": replace(DEFAULT, gated=False),
    "helium": replace(DEFAULT, o_bias=False),
    "hyperclovax": replace(DEFAULT, norms=blocks.peri_norms),
    "nemotron": replace(DEFAULT, gated=False, norm_bias=True),
    "jais2": replace(_ALL_BIAS, gated=False, norm_bias=True),
    **_each(
        "stablelm stablelm_epoch",
        replace(
            _NO_BIAS, qkv_bias=Key("use_qkv_bias"), norm_bias=True, norms=blocks.parallel_norms, qk_norm="all",
            qk_norm_if=Key("qk_layernorm"),
        ),
    ),
    **_each(
        "phi phi-msft",
        replace(
            _ALL_BIAS, gated=False, norm_bias=True, norms=1, head_bias=True, width=widths.four_times,
            layer=(extras.head_layer_norms("qk_layernorm", False),),
        ),
    ),
    "phi3small": replace(_ALL_BIAS, norm_bias=True),
    "phimoe": replace(DEFAULT, norm_bias=True, head_bias=Key("lm_head_bias")),
    "starcoder2": Traits(
        qkv_bias=Key("use_bias", True), o_bias=Key("use_bias", True), mlp_bias=Key("use_bias", True), gated=False,
        norm_bias=True,
    ),
    **_each("gpt2 gpt_bigcode", _GPT2),
    "openai-gpt": replace(_GPT2, final_norm=False),
    "codeshell": replace(_GPT2, positions=None),
    "jais": replace(_GPT2, gated=True, positions=None),
    "gpt_neo": replace(_GPT2, qkv_bias=False),
    **_each("gptj codegen", _GPTJ),
    "gpt_neox": replace(
        _GPT2, qkv_bias=Key("attention_bias", True), o_bias=Key("attention_bias", True), positions=None, width=None
    ),
    "gpt_neox_japanese": replace(
        _NO_BIAS, gated=False, norm_bias=True, width=widths.multiple, outer=(extras.dense_bias,)
    ),
    "opt": replace(
        _GPT2, qkv_bias=Key("enable_bias", True), o_bias=Key("enable_bias", True), mlp_bias=Key("enable_bias", True),
        norms=blocks.opt_norms, final_norm=Key("do_layer_norm_before", True), positions=2,
    ),
    "biogpt": replace(_GPT2, positions=2),
    "xglm": replace(_GPT2, positions=None),
    "bloom": replace(_GPT2, positions=None, outer=(extras.embedding_norm,)),
    "mpt": replace(_NO_BIAS, gated=False, width=widths.expanded),
    **_each(
        "falcon refinedweb refinedwebmodel",
        Traits(
            qkv_bias=Key("bias"), o_bias=Key("bias"), mlp_bias=Key("bias"), gated=False, norm_bias=True,
            norms=blocks.falcon_norms, width=widths.four_times,
        ),
    ),
    "persimmon": replace(
        _ALL_BIAS, gated=False, norm_bias=True, layer=(extras.head_layer_norms("qk_layernorm", True),)
    ),
    "dbrx": _NO_BIAS,
    "nanochat": replace(_NO_BIAS, gated=False, norms=0, final_norm=False),
    "gpt_oss": replace(
        _NO_BIAS, qkv_bias=Key("attention_bias", True), o_bias=Key("attention_bias", True), expert_bias=True,
        router_bias=True, mixers=mixers.sinks,
    ),
    "seed_oss": replace(DEFAULT, o_bias=Key("attention_out_bias")),
    **_each("bailing_moe bailing_moe_v2", _BAILING),
    **_each(
        "bailing_hybrid bailing_moe_linear bailing_moe_v2_5",
        replace(
            _BAILING, qk_norm="none", router_bias=False, mixers=mixers.ling_kda, layer=(extras.mla_head_gate,)
        ),
    ),
    **_each("ernie4_5 ernie4_5_moe", _ERNIE),
    **_each(
        "ernie4_5_vl_moe_text ernie4_5_moe_vl",
        replace(_ERNIE, moe=widths.ernie_text_experts, layer=(extras.ernie_vision_experts,)),
    ),
    **_each("hunyuan hunyuan_v1_moe hunyuan_v1_dense", _HUNYUAN),
    **_each(
        "lfm2 lfm2_moe",
        replace(_NO_BIAS, qk_norm="head", width=widths.lfm2, mixers=mixers.short_conv),
    ),
    "lfm3": replace(
        _NO_BIAS, norms=4, qk_norm="head", mixers=mixers.short_conv, layer=(extras.head_gate("gate", True),)
    ),
    **_each("llama4 llama4_text", replace(DEFAULT, moe=widths.same_shared)),
    "minimax_m2": replace(DEFAULT, qk_norm="all", qk_norm_if=Key("use_qk_norm", True)),
    **_each(
        "minimax_m3_vl_text minimax_m3_vl minimax_m3 minimax_m3_sparse",
        replace(DEFAULT, qk_norm="head", mixers=mixers.block_sparse),
    ),
    "mimo_v2_flash": replace(DEFAULT, o_bias=False, mlp_bias=False, mixers=mixers.mimo_sinks),
    **_each("step3p5 step3p7", _STEP),
    "laguna": replace(_QWEN3, router_bias=True, layer=(extras.head_gate("gating", True),)),
    "afmoe": replace(_QWEN3, norms=4, output_gate=True, router_bias=True),
    "muse_glimmer_text": replace(_NO_BIAS, norms=4, output_gate=True),
    **_each("nemotron-nas nemotron_nas", replace(DEFAULT, width=widths.decilm)),
    **_each("longcat_flash", replace(DEFAULT, norms=4, moe=widths.longcat_moe, layer=(extras.zero_experts,))),
    "deepseek_v4": _HYPER,
    **_each("deepseek_v41 deepseek_ref", _HYPER),
    **_each("glm5_next glm5_next_text", replace(DEFAULT, layer=(blocks.hyper_connections,))),
    "nemotron_h": replace(
        DEFAULT, gated=False, norms=1, mixers=mixers.mamba("use_conv_bias", "use_bias")
    ),
    **_each("bamba granitemoehybrid", _BAMBA),
    "falcon_h1": replace(_BAMBA, mixers=mixers.falcon_h1),
    "jamba": replace(_NO_BIAS, mixers=mixers.jamba),
    **_each("mamba falcon_mamba mamba2", _MAMBA),
    **_each(
        "rwkv5 rwkv6 rwkv7",
        replace(
            _NO_BIAS, gated=False, norm_bias=True, width=widths.rwkv, layer=(extras.rwkv_channel_mix,),
            outer=(extras.embedding_norm,),
        ),
    ),
    "zamba": replace(_ZAMBA, outer=(blocks.zamba_block,)),
    "zamba2": replace(_ZAMBA, outer=(blocks.zamba2_blocks,)),
    **_each("bart plbart", replace(_BART, positions=2, outer=(extras.embedding_norm, seq2seq.bart_encoder))),
    "mbart": replace(_BART, positions=2, final_norm=True, outer=(extras.embedding_norm, seq2seq.mbart_encoder)),
    **_each("marian", replace(_BART, positions=0, outer=(seq2seq.marian_encoder,))),
    "pegasus": replace(_BART, positions=0, final_norm=True, outer=(seq2seq.pegasus_encoder,)),
    "blenderbot": replace(_BART, positions=0, final_norm=True, outer=(seq2seq.pegasus_encoder,)),
    "m2m_100": replace(_BART, final_norm=True, outer=(seq2seq.m2m_encoder,)),
    "whisper": replace(
        _BART, positions=0, final_norm=True, mixers=mixers.whisper, layer=(extras.whisper_biases,),
        outer=(seq2seq.whisper_encoder,),
    ),
    **_each("t5 mt5 umt5", _T5),
    **_each(
        "mllama mllama_text_model",
        replace(_NO_BIAS, mixers=mixers.mllama, layer=(extras.mllama_gates,), outer=(extras.mllama_rows,)),
    ),
}  # fmt: skip
