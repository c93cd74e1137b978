"""Which layers see everything and which a window: from a config to one layer type (HF's names) for each layer.

A `Types` rule reads a decoder's keys and returns a list as long as the decoder. `layer_types` wins over every pattern
(`listed`); what a family does where the list is absent is the rule that it wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kvplan.hf.fields import Fields

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"

Types: TypeAlias = Callable[[Fields], list[str]]


def every(layer_type: str) -> Types:
    """All layers alike."""
    return lambda fields: [layer_type] * fields.need_size("num_hidden_layers")


def never(fields: Fields) -> list[str]:
    """All layers full: a window that `use_sliding_window: false` switches off is none."""
    if fields.has("use_sliding_window") and not fields.flag("use_sliding_window"):
        fields.explain("sliding_window")
    return every(FULL)(fields)


def listed(otherwise: Types, *keys: str) -> Types:
    """`layer_types` where the config has it (cut to the decoder: later entries are of MTP modules), else a rule.

    `keys`: what the list makes redundant, such as the pattern that it was written from.
    """

    def rule(fields: Fields) -> list[str]:
        types = fields.sequence("layer_types")
        if not types:
            return otherwise(fields)
        fields.explain("sliding_window", *_PATTERNS, *keys)
        count = fields.size("num_hidden_layers") or len(types)
        if len(types) < count:
            raise fields.bad("layer_types", f"has {len(types)} entries for {count} layers")
        return [str(t) for t in types[:count]]

    return rule


_PATTERNS = (
    "sliding_window_pattern", "_sliding_window_pattern", "max_window_layers", "use_sliding_window", "layer_switch",
    "order_of_interleaved_layers", "no_rope_layer_interval", "no_rope_layers", "full_attention_interval",
    "global_attn_every_n_layers",
)  # fmt: skip


def slides_everywhere(fields: Fields) -> list[str]:
    """A non-null `sliding_window` holds on every layer (Mistral, Phi-3, StarCoder2)."""
    kind = FULL if fields.size("sliding_window") is None else SLIDING
    return every(kind)(fields)


def slides_late(fields: Fields) -> list[str]:
    """Qwen: only with `use_sliding_window`, and only from layer `max_window_layers` (28 by default) on."""
    layers = fields.need_size("num_hidden_layers")
    fields.explain("sliding_window", "max_window_layers")
    if not fields.flag("use_sliding_window") or not fields.has("sliding_window"):
        return [FULL] * layers
    first = fields.count("max_window_layers", 28, least=0) or 0
    return [SLIDING if i >= first else FULL for i in range(layers)]


def full_every(
    period: int, *, key: str = "sliding_window_pattern", other: str | None = None, bounded: str = SLIDING
) -> Types:
    """Layers period-1, 2*period-1 ... are full, the others `bounded`; the file's own period (`key`, `other`) wins.

    A string such as "LLLG" (EXAONE-4) is the pattern itself; without a window every layer is full.
    """

    def rule(fields: Fields) -> list[str]:
        layers = fields.need_size("num_hidden_layers")
        stated = fields.value(key)
        if bounded == SLIDING and fields.size("sliding_window") is None:
            return [FULL] * layers
        if isinstance(stated, str):
            return _spelled(fields, key, stated, layers)
        every_n = fields.count(key) or (fields.count(other) if other else None) or period
        return [FULL if (i + 1) % every_n == 0 else bounded for i in range(layers)]

    return rule


def _spelled(fields: Fields, key: str, pattern: str, layers: int) -> list[str]:
    letters = {"L": SLIDING, "G": FULL}
    if not pattern or set(pattern) - set(letters):
        raise fields.bad(key, "is not a pattern of L (local, sliding) and G (global, full)")
    types = [letters[pattern[i % len(pattern)]] for i in range(layers)]
    if fields.text("cache_implementation") == "hybrid":
        types[-1] = FULL
    return types


def alternating(fields: Fields) -> list[str]:
    """Even layers slide, odd ones are full (Gemma-2, gpt-oss without a list)."""
    return [FULL if i % 2 else SLIDING for i in range(fields.need_size("num_hidden_layers"))]


def unlisted(fields: Fields) -> list[str]:
    """For families whose files always carry `layer_types`."""
    raise fields.bad("layer_types", "missing; nothing else says what each layer sees")
