"""Layers with a state instead of a growing cache: which keys give the shape of each.

The same shape has several sets of names; `d_inner` is what the layer really holds, never `expand` x hidden where the
file states heads and head size (hf_config_quirks, section 7).
"""

from __future__ import annotations

from kvplan.attention.linear import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Rwkv
from kvplan.attention.mamba import Mamba1, Mamba2, ShortConv
from kvplan.hf.fields import Fields
from kvplan.hf.heads import standard
from kvplan.hf.softmax import Layer, Maker


def _either(fields: Fields, *names: str) -> int:
    """The first of several names that the file uses; the last is the one an error asks for."""
    for name in names:
        value = fields.count(name)
        if value is not None:
            return value
    return fields.need(names[-1])


def mamba1_expanded(fields: Fields, _layer: int) -> Layer:
    """Jamba, Zamba: d_inner = mamba_expand x hidden_size; `intermediate_size` is the MLP's."""
    fields.explain("n_mamba_heads")
    inner = fields.need("mamba_expand") * fields.need_size("hidden_size")
    rank = fields.value("mamba_dt_rank")
    state = Mamba1(
        intermediate_size=inner,
        state_size=fields.need("mamba_d_state"),
        conv_kernel=fields.need("mamba_d_conv"),
        time_step_rank=None if rank == "auto" else fields.count("mamba_dt_rank"),
    )
    return (state,)


def mamba1(fields: Fields, _layer: int) -> Layer:
    """Mamba, Falcon-Mamba: `intermediate_size` is d_inner, whatever `expand` says."""
    rank = fields.value("time_step_rank")
    state = Mamba1(
        intermediate_size=fields.one_count("intermediate_size")
        or fields.need("expand") * fields.need_size("hidden_size"),
        state_size=fields.need("state_size"),
        conv_kernel=fields.need("conv_kernel"),
        time_step_rank=None if rank == "auto" else fields.count("time_step_rank"),
    )
    return (state,)


def mamba2_pure(fields: Fields, _layer: int) -> Layer:
    """Mamba-2 files: num_heads and head_dim describe the state, not attention."""
    state = Mamba2(
        num_heads=fields.need("num_heads"),
        head_dim=fields.need("head_dim"),
        state_size=fields.need("state_size"),
        n_groups=fields.need("n_groups"),
        conv_kernel=fields.need("conv_kernel"),
    )
    return (state,)


def mamba2(fields: Fields, _layer: int) -> Layer:
    """Mamba-2 inside a hybrid, under any of three sets of names."""
    fields.explain("mamba_expand", "mamba_d_ssm", "expand")
    heads = _either(fields, "n_mamba_heads", "mamba_num_heads", "mamba_n_heads")
    state = Mamba2(
        num_heads=heads,
        head_dim=_mamba_head_dim(fields, heads),
        state_size=_either(fields, "ssm_state_size", "mamba_d_state"),
        n_groups=_either(fields, "mamba_ngroups", "mamba_n_groups", "n_groups"),
        conv_kernel=_either(fields, "conv_kernel", "mamba_d_conv"),
    )
    return (state,)


def _mamba_head_dim(fields: Fields, heads: int) -> int:
    """Stated; expand x hidden / heads where it is "auto", or absent from a Zamba file (its class computes it)."""
    auto = fields.value("mamba_d_head") == "auto" or (fields.has("n_mamba_heads") and not fields.has("mamba_headdim"))
    if auto:
        return fields.need("mamba_expand") * fields.need_size("hidden_size") // heads
    return _either(fields, "mamba_headdim", "mamba_d_head", "mamba_head_dim")


def gated_deltanet(fields: Fields, _layer: int) -> Layer:
    """Qwen3-Next, Qwen3.5, OLMo-hybrid."""
    state = GatedDeltaNet(
        num_key_heads=fields.need_size("linear_num_key_heads"),
        num_value_heads=fields.need_size("linear_num_value_heads"),
        key_head_dim=fields.need_size("linear_key_head_dim"),
        value_head_dim=fields.need_size("linear_value_head_dim"),
        conv_kernel=fields.need_size("linear_conv_kernel_dim"),
    )
    return (state,)


def kda(fields: Fields, _layer: int) -> Layer:
    """Kimi Delta Attention, from `linear_attn_config` or the flat names that transformers makes of it."""
    section = fields.section("linear_attn_config")
    if section is None:
        heads, dim = fields.need_size("linear_num_heads"), fields.need_size("linear_head_dim")
        return (
            KimiDeltaAttention(num_heads=heads, head_dim=dim, conv_kernel=fields.need_size("linear_conv_kernel_dim")),
        )
    fields.explain("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    section.explain("full_attn_layers", "kda_layers", "use_full_rank_gate", "gate_lower_bound")
    state = KimiDeltaAttention(
        num_heads=section.need("num_heads"),
        head_dim=section.need("head_dim"),
        conv_kernel=section.need("short_conv_kernel_size"),
    )
    return (state,)


def lightning(fields: Fields, layer: int) -> Layer:
    """One head_dim x head_dim state for each *query* head; KV heads are of the softmax layers."""
    heads = standard(fields, layer)
    return (LightningAttention(num_heads=heads.query, head_dim=heads.dim),)


def short_conv(fields: Fields, _layer: int) -> Layer:
    """LFM2: `conv_L_cache` taps over the hidden size."""
    fields.explain("conv_dim", "conv_dim_out", "conv_bias")
    return (ShortConv(channels=fields.need_size("hidden_size"), conv_kernel=fields.need_size("conv_L_cache")),)


def rwkv(fields: Fields, _layer: int) -> Layer:
    """RWKV-5 to 7: heads = attention_hidden_size / head_size. Variants that expand keys have another state."""
    if fields.has("expand_k"):
        raise fields.bad("expand_k", "gives keys a width of their own, which no rule of RWKV explains")
    hidden = fields.need_size("hidden_size")
    size = _either(fields, "head_size", "head_dim")
    width = fields.count("attention_hidden_size") or hidden
    fields.explain("num_attention_heads", "num_heads", "head_size_divisor")
    return (Rwkv(num_heads=width // size, head_size=size, hidden_size=hidden),)


def beside(*makers: Maker) -> Maker:
    """A layer that runs several mixers (Falcon-H1's attention beside Mamba-2, Zamba's shared block, LongCat's two)."""
    return lambda fields, layer: tuple(mixer for maker in makers for mixer in maker(fields, layer))
