"""How far a model can see: its stated maximum context and the stretching of its rotary positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.hf.fields import Fields
from kvplan.hf.names import SPELLINGS
from kvplan.model import RopeScaling

_PLAIN = ("default", "proportional")


def max_context(fields: Fields) -> int | None:
    """The longest context in tokens, or None where the file states none.

    `model_max_length` wins where it is larger: Cohere's files keep max_position_embeddings at the size that an old
    attention mask had (vLLM reads them so). Otherwise the spellings are synonyms and the largest holds.
    """
    names = ("max_position_embeddings", *SPELLINGS["max_position_embeddings"])
    stated = [value for name in names if (value := fields.one_count(name)) is not None]
    return max(stated, default=None)


def rope_scaling(fields: Fields) -> RopeScaling | None:
    """`rope_scaling`, or transformers 5's `rope_parameters` (of the full layers where layer types differ)."""
    section = fields.section("rope_scaling") or _parameters(fields)
    if section is None:
        return None
    rope_type = section.text("rope_type") or section.text("type")
    if rope_type is None or rope_type in _PLAIN or "mrope_section" in section.raw:
        return None
    factor = section.number("factor") or section.number("short_factor_scale")
    return RopeScaling(
        rope_type=rope_type,
        factor=1.0 if factor is None else factor,
        original_max_position_embeddings=_original(fields, section),
        mscale=section.number("mscale"),
        mscale_all_dim=section.number("mscale_all_dim"),
    )


def _parameters(fields: Fields) -> Fields | None:
    section = fields.section("rope_parameters")
    if section is None:
        return None
    nested: Mapping[str, Any] = {k: v for k, v in section.raw.items() if isinstance(v, Mapping)}
    for name in ("full_attention", "main", *nested):
        if name in nested:
            return section.section(name)
    return section


def _original(fields: Fields, section: Fields) -> int | None:
    return section.count("original_max_position_embeddings") or fields.count("original_max_position_embeddings")
