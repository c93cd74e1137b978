"""Which family a decoder belongs to: from its model_type, and from its architecture where that says more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvplan.errors import BadInput, Unsupported
from kvplan.hf.fields import Fields, shown
from kvplan.hf.kinds import FAMILIES, PLAIN, Family, known_type

_GENERATES = re.compile(r"CausalLM|ConditionalGeneration|LMHead|ForGeneration|LMPrediction")
_KEEPS_NO_CACHE = re.compile(
    r"bert|roberta|electra|clip|siglip|^vit|dinov|wav2vec|hubert|xlstm|^rwkv$|retnet|hyena|perceiver"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A decoder's model_type (as the table spells it, or as the file does), its family and architecture."""

    model_type: str
    family: Family
    architecture: str | None


def architecture(config: Mapping[str, Any], where: str) -> str | None:
    """The first of `architectures`, or None."""
    names = config.get("architectures")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise BadInput(f"{where}: architectures: {shown(names)} is not a list of names")
    return names[0] if names else None


def identify(fields: Fields, top: Mapping[str, Any]) -> Identity:
    """The family of a decoder; of an unknown one, plain attention if it generates text at all.

    An architecture that names another family wins: it is what engines load (a Mamba-2 file says model_type "mamba").
    """
    own = architecture(fields.raw, fields.where)
    stated = fields.text("model_type") or _from_wrapper(fields)
    by_type, by_architecture = known_type(stated or ""), known_type(own or "")
    if by_architecture and FAMILIES.get(by_type or "") is not FAMILIES[by_architecture]:
        if stated:
            fields.note(f"model_type is {stated!r}, but {own} is read as {by_architecture!r}")
        by_type = by_architecture
    name = by_type or stated or own
    if not name:
        raise BadInput(f"{fields.where}: model_type: missing, and architectures names no family that is known")
    shown_architecture = own or architecture(top, fields.where)
    if by_type:
        return Identity(by_type, FAMILIES[by_type], shown_architecture)
    return Identity(name, _unknown(fields, name, own), shown_architecture)


def _from_wrapper(fields: Fields) -> str | None:
    """The wrapper's model_type, for a decoder that has none but states its layers (MiniMax-M3)."""
    if fields.wrapper is None or fields.absent("num_hidden_layers"):
        return None
    return fields.wrapper.text("model_type")


def _unknown(fields: Fields, name: str, own: str | None) -> Family:
    if _KEEPS_NO_CACHE.search(name) or (own and not _GENERATES.search(own)):
        raise Unsupported(f"{fields.where}: model_type: {name!r} ({own}) is no text decoder whose cache kvplan knows")
    for key in ("is_encoder_decoder", "type_vocab_size", "encoder_layers", "num_decoder_layers"):
        if fields.raw.get(key):
            raise Unsupported(f"{fields.where}: {key}: model_type {name!r} has an encoder that no rule explains")
    fields.note(f"model_type {name!r} is unknown: read by its standard keys; no key speaks of anything else")
    return PLAIN
