"""What a family says of its mixers' weights beyond biases and norms: gates, sinks, shared blocks, convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvplan.attention import Attention
from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import KimiDeltaAttention
from kvplan.attention.mamba import Mamba1, Mamba2, ShortConv
from kvplan.hf.fields import Fields


def mamba(conv_key: str, proj_key: str) -> Callable[[Fields, Attention], Attention]:
    """A convolution with a bias unless `conv_key` says no; projections with biases where `proj_key` says so."""

    def rule(fields: Fields, attention: Attention) -> Attention:
        if not isinstance(attention, Mamba1 | Mamba2):
            return attention
        return replace(attention, conv_bias=fields.flag(conv_key, True), proj_bias=fields.flag(proj_key))

    return rule


_MAMBA = mamba("mamba_conv_bias", "mamba_proj_bias")


def falcon_h1(fields: Fields, attention: Attention) -> Attention:
    """Falcon-H1: a gated norm only with `mamba_rms_norm`."""
    attention = _MAMBA(fields, attention)
    if isinstance(attention, Mamba2):
        return replace(attention, gated_norm=fields.flag("mamba_rms_norm"))
    return attention


def jamba(fields: Fields, attention: Attention) -> Attention:
    """Jamba: norms of dt, B and C."""
    attention = _MAMBA(fields, attention)
    return replace(attention, dt_norms=True) if isinstance(attention, Mamba1) else attention


def zamba(_fields: Fields, attention: Attention) -> Attention:
    """Zamba: several layers call one attention block."""
    return replace(attention, shared_block=True) if isinstance(attention, GroupedQueryAttention) else attention


def sinks(_fields: Fields, attention: Attention) -> Attention:
    """One learned logit per head in every layer (gpt-oss)."""
    return replace(attention, sinks=True) if isinstance(attention, GroupedQueryAttention) else attention


def mimo_sinks(fields: Fields, attention: Attention) -> Attention:
    """MiMo-V2: sinks in sliding layers, in full ones only where the config asks for them."""
    if not isinstance(attention, GroupedQueryAttention):
        return attention
    if attention.sliding_window:
        return replace(attention, sinks=fields.flag("add_swa_attention_sink_bias", True))
    return replace(attention, sinks=fields.flag("add_full_attention_sink_bias"))


def gemma4(fields: Fields, attention: Attention) -> Attention:
    """Gemma 4: in full layers one projection may serve K and V."""
    if isinstance(attention, GroupedQueryAttention) and not attention.sliding_window:
        return replace(attention, k_is_v=fields.flag("attention_k_eq_v", fields.has("num_global_key_value_heads")))
    return attention


def ling_kda(_fields: Fields, attention: Attention) -> Attention:
    """Ling's Kimi Delta Attention: decay and output gates are whole matrices."""
    return replace(attention, full_rank="both") if isinstance(attention, KimiDeltaAttention) else attention


def kimi_kda(fields: Fields, attention: Attention) -> Attention:
    """Kimi-K3's: the output gate is a whole matrix where `use_full_rank_gate` says so."""
    section = fields.section("linear_attn_config")
    if isinstance(attention, KimiDeltaAttention) and section is not None and section.flag("use_full_rank_gate"):
        return replace(attention, full_rank="output")
    return attention


def short_conv(fields: Fields, attention: Attention) -> Attention:
    """LFM2: biases of the convolution and its projections."""
    return replace(attention, bias=fields.flag("conv_bias")) if isinstance(attention, ShortConv) else attention


def block_sparse(fields: Fields, attention: Attention) -> Attention:
    """MiniMax-M3: the index heads of its sparse layers."""
    if not isinstance(attention, GroupedQueryAttention) or not attention.index_head_dim:
        return attention
    section = fields.section("sparse_attention_config")
    heads = section.count("sparse_num_index_heads") if section is not None else fields.count("index_n_heads")
    return replace(attention, index_n_heads=heads)


def whisper(_fields: Fields, attention: Attention) -> Attention:
    """Whisper: no bias on K; the others are counted beside."""
    if isinstance(attention, GroupedQueryAttention):
        return replace(attention, qkv_bias=False)
    return replace(attention, bias=False) if isinstance(attention, CrossAttention) else attention


def mllama(_fields: Fields, attention: Attention) -> Attention:
    """Llama-3.2-Vision: cross attention normalises the heads of Q and K."""
    return replace(attention, qk_norm=True) if isinstance(attention, CrossAttention) else attention
