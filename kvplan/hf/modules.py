"""Module names in a quantization config, as the parts of a model that they belong to.

Checkpoints list thousands of modules; what matters for bytes is which parts are stored in another format, or in none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kvplan.hf.fields import Fields

_SKIPPED_KEYS = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (part, re.compile(words))
    for part, words in (
        (
            "",
            r"visual|vision|merger|projector|audio|mtp|embed|head|eh_proj|norm|bias|gate$|router|base$|_fn$|_scale$"
            r"|conv1d|in_proj_(a|b|ba)$",
        ),
        ("shared_experts", r"shared_expert"),
        ("experts", r"experts"),
        ("indexer", r"indexer|index_"),
        ("mixer", r"linear_attn|mamba|mixer\.(in|out)_proj|f_a_proj|A_log"),
        ("attention", r"attn|attention|mixer\.[qkvo]_proj"),
        ("mlp", r"mlp|ffn|feed_forward"),
    )
)
_PROJECTION = re.compile(r"\w+_proj\w*|\bw[123]\b")
_WHOLE = 3
"""A part counts as left out if its module is, or at least this many of its projections are."""


def part_of(name: str) -> str:
    """The part of a module, or nothing for what every checkpoint keeps unquantized or no text model has."""
    name = name.replace("\\.", ".")
    return next((part for part, words in _PARTS if words.search(name)), "")


def unquantized_parts(sections: Iterable[Fields]) -> list[str]:
    """Parts whose modules stand in a list of what is not converted, or several of a part's modules, sorted."""
    projections: dict[str, set[str]] = {}
    for section in sections:
        for key in _SKIPPED_KEYS:
            for name in section.sequence(key) or ():
                part = part_of(name) if isinstance(name, str) else ""
                if part:
                    found = _PROJECTION.search(name)
                    projections.setdefault(part, set()).add(found[0] if found else "")
    return sorted(name for part, found in projections.items() for name in _left_out(part, found))


def _left_out(part: str, projections: set[str]) -> list[str]:
    """The whole part, or its modules where the largest, attention's output, is not among them (DeepSeek in NVFP4)."""
    if "" in projections or "(" in str(projections):
        return [part]
    if len(projections) < _WHOLE:
        return []
    return [part] if part != "attention" or "o_proj" in projections else [f"{part}.{p}" for p in projections]


def mixed_formats(layered: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Part -> algorithm of most of its modules, from modelopt's `quantized_layers`."""
    counts: dict[str, Counter[str]] = {}
    for modules in layered:
        for name, scheme in modules.items():
            part = part_of(name)
            if part and isinstance(scheme, Mapping):
                counts.setdefault(part, Counter())[str(scheme.get("quant_algo")).lower()] += 1
    return {part: found.most_common(1)[0][0] for part, found in counts.items()}
