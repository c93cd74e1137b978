"""How far a model can see: its stated maximum context and the stretching of its rotary positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvplan.hf.fields import Fields
from kvplan.hf.names import SPELLINGS
from kvplan.model import RopeScaling

_PLAIN = ("default", "proportional", "mrope")


def max_context(fields: Fields) -> int | None:
    """The longest context in tokens, or None where the file states none.

    `model_max_length` wins: Cohere's files keep max_position_embeddings at the size of an old attention mask (vLLM
    reads them so). Otherwise the first spelling that is there holds.
    """
    names = ("model_max_length", "max_position_embeddings", *SPELLINGS["max_position_embeddings"])
    stated = next((value for name in names if (value := fields.one_count(name)) is not None), None)
    if stated is None and fields.nested:
        return fields.size("max_position_embeddings")
    return stated


def rope_scaling(fields: Fields) -> RopeScaling | None:
    """`rope_scaling`, or transformers 5's `rope_parameters`, by layer type or not."""
    for section in _candidates(fields):
        rope_type = section.text("rope_type") or section.text("type")
        if rope_type is not None and rope_type not in _PLAIN:
            return _scaling(fields, section, rope_type)
    return None


def _candidates(fields: Fields) -> Iterator[Fields]:
    for name in ("rope_scaling", "rope_parameters"):
        section = fields.section(name)
        if section is not None:
            yield section
            yield from (s for key, v in section.raw.items() if isinstance(v, Mapping) and (s := section.section(key)))


def _scaling(fields: Fields, section: Fields, rope_type: str) -> RopeScaling:
    original = section.count("original_max_position_embeddings") or fields.count("original_max_position_embeddings")
    factor = section.number("factor")
    context = max_context(fields)
    if factor is None and original and context:
        factor = context / original
    return RopeScaling(
        rope_type=rope_type,
        factor=1.0 if factor is None else factor,
        original_max_position_embeddings=original,
        mscale=section.number("mscale"),
        mscale_all_dim=section.number("mscale_all_dim"),
    )
