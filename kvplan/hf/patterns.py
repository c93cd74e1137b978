"""Layer types of hybrids: lists, letters, periods and indices that say which layer runs what.

Each rule returns one of a few words for each layer; the family's makers say what they build.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.hf.fields import Fields
from kvplan.hf.windows import CHUNKED, FULL, SLIDING, Types, every

LINEAR, HYBRID, MLP, MOE, NO_OP, REPLACED = "linear_attention", "hybrid", "mlp", "moe", "no_op", "linear_replacement"
_LETTERS = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}
_WORDS = {"mamba": LINEAR, "attention": FULL, "recurrent": LINEAR, "deepseek_sparse_attention": "indexed_attention"}


def renamed(types: Types, words: Mapping[str, str] = _WORDS) -> Types:
    """A list with older words for the same layers (`mamba`, `attention`) under the newer ones."""
    return lambda fields: [words.get(t, t) for t in types(fields)]


def letters(text: str, fields: Fields, key: str) -> list[str]:
    """Nemotron-H's letters: M Mamba-2, * attention, - MLP, E mixture of experts."""
    if not text or set(text) - set(_LETTERS):
        raise fields.bad(key, f"is not a pattern of {' '.join(_LETTERS)}")
    return [_LETTERS[letter] for letter in text]


def blocks(fields: Fields) -> list[str]:
    """`layers_block_type`, else `hybrid_override_pattern`: MLP and MoE blocks count as layers too.

    num_hidden_layers may be absent, and must agree where it is there.
    """
    listed = fields.sequence("layer_types")
    pattern = fields.text("hybrid_override_pattern")
    types = [str(t) for t in listed or ()] or letters(pattern or "", fields, "hybrid_override_pattern")
    count = fields.count("num_hidden_layers")
    if count is not None and count != len(types):
        raise fields.bad("num_hidden_layers", f"but the block list has {len(types)} entries")
    return [_WORDS.get(t, t) for t in types]


def attention_period(fields: Fields) -> list[str]:
    """Jamba: attention where layer % attn_layer_period == attn_layer_offset."""
    layers = fields.need_size("num_hidden_layers")
    period, offset = fields.need("attn_layer_period"), fields.need("attn_layer_offset", least=0)
    return [FULL if i % period == offset else LINEAR for i in range(layers)]


def attention_indices(absent: str) -> Types:
    """`attn_layer_indices` (Bamba) or `full_attn_idxs` (LFM2) list the attention layers; others are `absent`."""

    def rule(fields: Fields) -> list[str]:
        layers = fields.need_size("num_hidden_layers")
        indices = fields.indices("attn_layer_indices")
        indices = fields.indices("full_attn_idxs") if indices is None else indices
        if indices is None:
            raise fields.bad("attn_layer_indices", "is missing; nothing else says which layers attend")
        return [FULL if i in indices else absent for i in range(layers)]

    return rule


def hybrid_ids(fields: Fields) -> list[str]:
    """Zamba2: `hybrid_layer_ids` add the shared attention block to their Mamba block; or the list says `hybrid`."""
    layers = fields.need_size("num_hidden_layers")
    indices, listed = fields.indices("hybrid_layer_ids"), fields.sequence("layer_types")
    if indices is None and listed is None:
        raise fields.bad("hybrid_layer_ids", "is missing; nothing else says which layers attend")
    if indices is None:
        indices = frozenset(i for i, t in enumerate(listed or ()) if t == HYBRID)
    return [HYBRID if i in indices else LINEAR for i in range(layers)]


def zamba_blocks(fields: Fields) -> list[str]:
    """Zamba: the list; the class default puts `hybrid` at layer 2 and then by period and offset."""
    listed = fields.sequence("layer_types")
    if listed:
        return [_WORDS.get(t, t) for t in map(str, listed)]
    period, offset = fields.need("attn_layer_period"), fields.need("attn_layer_offset", least=0)
    rest = (HYBRID if i % period == offset else LINEAR for i in range(fields.need_size("num_hidden_layers") - 3))
    return [LINEAR, LINEAR, HYBRID, *rest]


def marked(key: str, one: str, zero: str, *, section: str | None = None) -> Types:
    """A list of 0 and 1 by layer: MiniMax `attn_type_list` (1 softmax), MiMo `hybrid_layer_pattern` (1 sliding)."""

    def rule(fields: Fields) -> list[str]:
        layers = fields.need_size("num_hidden_layers")
        at = (fields.section(section) if section else None) or fields
        flags = at.sequence(key)
        if flags is None:
            raise at.bad(key, "is missing; nothing else says which layers are which")
        if len(flags) < layers or not all(f in (0, 1) for f in flags):
            raise at.bad(key, f"is not a list of {layers} zeros and ones")
        return [one if f else zero for f in flags[:layers]]

    return rule


def linear_attn_lists(first: int) -> Types:
    """Kimi: `linear_attn_config` lists both kinds of layer, counted from `first`; each layer stands in one list."""

    def rule(fields: Fields) -> list[str]:
        layers = fields.need_size("num_hidden_layers")
        section = fields.section("linear_attn_config")
        if section is None:
            raise fields.bad("linear_attn_config", "is missing; nothing else says which layers are which")
        full, linear = (section.indices(key, first=first) or frozenset() for key in ("full_attn_layers", "kda_layers"))
        if full & linear or full | linear != frozenset(range(layers)):
            raise section.bad("full_attn_layers", f"and kda_layers do not share out {layers} layers from {first}")
        return [FULL if i in full else LINEAR for i in range(layers)]

    return rule


def rope_marks(fields: Fields) -> list[str]:
    """Llama 4: layers with rotary positions attend in chunks; NoPE layers (every 4th, or marked 0) see everything."""
    layers = fields.need_size("num_hidden_layers")
    every_n = fields.count("no_rope_layer_interval", 4) or 4
    marks = fields.sequence("no_rope_layers") or [int((i + 1) % every_n != 0) for i in range(layers)]
    if len(marks) < layers or not all(m in (0, 1) for m in marks):
        raise fields.bad("no_rope_layers", f"is not a list of {layers} zeros and ones")
    chunks = fields.size("attention_chunk_size") is not None
    return [CHUNKED if m and chunks else FULL for m in marks[:layers]]


def local_and_global(fields: Fields) -> list[str]:
    """GPT-Neo: `attention_layers`, or `attention_types` such as [[["global", "local"], 12]]."""
    layers = fields.need_size("num_hidden_layers")
    words = fields.sequence("attention_layers")
    if words is None:
        runs = fields.sequence("attention_types") or [[["global", "local"], layers // 2]]
        if not all(
            isinstance(r, list) and len(r) == 2 and isinstance(r[0], list) and isinstance(r[1], int) for r in runs
        ):
            raise fields.bad("attention_types", 'is not a list such as [[["global", "local"], 12]]')
        words = [word for names, times in runs for _ in range(min(times, layers)) for word in names]
    fields.explain("attention_types")
    if len(words) < layers or not all(w in ("global", "local") for w in words):
        raise fields.bad("attention_layers", f"is not a list of {layers} times global or local")
    return [FULL if w == "global" else SLIDING for w in words[:layers]]


def decilm_blocks(fields: Fields) -> list[str]:
    """DeciLM `block_configs`: attention may be skipped or replaced by a linear layer; a window is named by its size."""
    layers = every(FULL)(fields)
    for i in range(len(layers)):
        block = attention_block(fields, i)
        if block.flag("no_op"):
            layers[i] = NO_OP
        elif block.flag("replace_with_linear"):
            layers[i] = REPLACED
        elif block.has("window_length"):
            layers[i] = SLIDING
    return layers


def attention_block(fields: Fields, layer: int) -> Fields:
    """The attention part of one DeciLM block."""
    entries = fields.sequence("block_configs") or ()
    entry = entries[layer] if layer < len(entries) else None
    attention = entry.get("attention") if isinstance(entry, Mapping) else None
    if not isinstance(attention, Mapping):
        raise fields.bad("block_configs", f"has no attention entry for layer {layer}")
    return Fields(attention, f"{fields.where}: block_configs[{layer}]: attention")
