"""How wide MLPs and experts are where no plain `intermediate_size` says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvplan.arith import round_up
from kvplan.hf.fields import Fields
from kvplan.mlp import MoeMlp
from kvplan.model import ModelSpec


def stated(fields: Fields, _spec: ModelSpec, _layer: int) -> int | None:
    """The width of the file, whatever the importer read of it (encoder-decoders name one for each side)."""
    return fields.count("intermediate_size")


def four_times(fields: Fields, spec: ModelSpec, _layer: int) -> int:
    """What the file states, else 4 x hidden_size (GPT-2 and its kin)."""
    return fields.count("intermediate_size") or 4 * spec.hidden_size


def rwkv(fields: Fields, spec: ModelSpec, _layer: int) -> int:
    """RWKV: 3.5 x hidden_size, rounded down to 32, unless the file says otherwise."""
    return fields.count("intermediate_size") or int(spec.hidden_size * 3.5) // 32 * 32


def multiple(fields: Fields, spec: ModelSpec, _layer: int) -> int:
    """`intermediate_multiple_size` x hidden_size (GPT-NeoX Japanese)."""
    return (fields.count("intermediate_multiple_size") or 4) * spec.hidden_size


def expanded(fields: Fields, spec: ModelSpec, _layer: int) -> int:
    """`expansion_ratio` x d_model (MPT)."""
    return int((fields.number("expansion_ratio") or 4) * spec.hidden_size)


def halved(fields: Fields, _spec: ModelSpec, _layer: int) -> int:
    """Qwen-1 states gate and up projection together."""
    return (fields.count("intermediate_size") or 0) // 2


def gemma4(fields: Fields, spec: ModelSpec, layer: int) -> int | None:
    """Layers that read another's K and V are twice as wide with `use_double_wide_mlp`."""
    width = fields.optional_size("intermediate_size")
    own = spec.num_hidden_layers - (fields.count("num_kv_shared_layers", 0, least=0) or 0)
    return 2 * width if width and layer >= own and fields.flag("use_double_wide_mlp") else width


def lfm2(fields: Fields, spec: ModelSpec, _layer: int) -> int | None:
    """LFM2 takes two thirds of the stated width, rounded up to `block_multiple_of`, as Llama 1 did."""
    width = fields.optional_size("intermediate_size")
    if not width or not fields.flag("block_auto_adjust_ff_dim", spec.model_type == "lfm2"):
        return width
    factor = fields.number("block_ffn_dim_multiplier")
    adjusted = int((1.0 if factor is None else factor) * (2 * width // 3))
    return round_up(adjusted, fields.count("block_multiple_of") or 256)


def decilm(fields: Fields, spec: ModelSpec, layer: int) -> int | None:
    """DeciLM: each block's `ffn_mult`, two thirds of it as in Llama 1, rounded up to 256; or no MLP."""
    blocks = fields.sequence("block_configs") or ()
    block = blocks[layer] if layer < len(blocks) and isinstance(blocks[layer], Mapping) else {}
    ffn = Fields(block, f"{fields.where}: block_configs[{layer}]").section("ffn")
    if ffn is None or ffn.flag("no_op") or ffn.flag("replace_with_linear"):
        return None
    factor = ffn.number("ffn_mult")
    return round_up(int(2 * factor * spec.hidden_size / 3), 256) if factor else ffn.count("intermediate_size")


def same_shared(fields: Fields, _spec: ModelSpec, moe: MoeMlp) -> MoeMlp:
    """A shared expert, or a dense MLP beside the experts, of `intermediate_size` (Llama 4, Hunyuan, Gemma 4)."""
    return replace(moe, shared_intermediate_size=fields.optional_size("intermediate_size") or 0)


def longcat_moe(fields: Fields, _spec: ModelSpec, moe: MoeMlp) -> MoeMlp:
    """LongCat-Flash's experts run beside two dense MLPs (shortcut-connected)."""
    return replace(moe, shared_intermediate_size=2 * (fields.count("intermediate_size") or 0))


def ernie_text_experts(fields: Fields, _spec: ModelSpec, moe: MoeMlp) -> MoeMlp:
    """ERNIE-VL lists the widths of text and of vision experts; a text token chooses among its own."""
    sizes = (
        fields.sequence("moe_intermediate_size") if isinstance(fields.value("moe_intermediate_size"), list) else None
    )
    return replace(moe, moe_intermediate_size=sizes[0]) if sizes and isinstance(sizes[0], int) else moe
