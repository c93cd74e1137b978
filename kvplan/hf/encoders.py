"""Encoders of images and audio beside a decoder: found in the config, counted by their kind, noted where unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kvplan.hf import audio, vision, vision_merged
from kvplan.hf.fields import Fields
from kvplan.hf.locate import DECODER_KEYS, squash
from kvplan.hf.projectors import PROJECTORS
from kvplan.hf.speech import speech_weights
from kvplan.model import ModelSpec, OtherWeight

_NESTING = ("thinker_config",)
"""Objects that hold the encoders of omni models."""
_COUNTED = frozenset({*DECODER_KEYS, "vision_config", "audio_config", "talker_config", "token2wav_config"})
_SIZES = frozenset({"hidden_size", "d_model", "embed_dim", "hidden_dim", "num_hidden_layers"})
_OWN_CLASSES = frozenset({"minicpmv", "minicpmo", "minimax_m3_vl", "internvl_chat", "kimi_vl"})
"""Wrappers whose encoder is their own class, though the file calls it siglip_vision_model or clip_vision_model."""
_TAIL = re.compile(r"(_vision|_audio)?(_model|_encoder)?$")


def encoder_weights(fields: Fields, top: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Weights of the image and audio encoders that stand beside the decoder of `fields`; notes go there."""
    holder = next((section for key in _NESTING if (section := top.section(key)) is not None), top)
    wrapper_type = holder.text("model_type") or top.text("model_type") or ""
    yield from _vision(fields, holder, wrapper_type, spec)
    yield from _audio(fields, holder, wrapper_type, spec)
    yield from speech_weights(top)
    _note_others(fields, holder)


def _kind(section: Fields, wrapper_type: str) -> str:
    """What the section calls itself, else what the model is, without the tail that only says where it stands."""
    return _TAIL.sub("", section.text("model_type") or wrapper_type)


def _known_wrapper(holder: Fields, wrapper_type: str) -> str:
    """The model_type of the wrapper, else of its architecture, as the table of projectors spells it."""
    if wrapper_type in PROJECTORS:
        return wrapper_type
    names = holder.sequence("architectures") or ()
    squashed = squash(str(names[0])) if names else ""
    return next((name for name in PROJECTORS if squash(name) == squashed), wrapper_type)


def _vision(fields: Fields, holder: Fields, wrapper_type: str, spec: ModelSpec) -> Iterator[OtherWeight]:
    section = holder.section("vision_config")
    if section is None:
        return
    wrapper = _known_wrapper(holder, wrapper_type)
    kind = wrapper if wrapper in _OWN_CLASSES else _kind(section, wrapper_type)
    tower = vision.TOWERS.get(kind) or vision_merged.TOWERS.get(kind)
    if tower is None:
        fields.note(f"the image encoder ({kind or 'unnamed'}) is not counted")
        return
    yield from tower(section, spec)
    projector = PROJECTORS.get(wrapper)
    if projector is not None:
        yield from projector(holder, section, spec)
    elif kind not in vision_merged.TOWERS:
        fields.note(f"the projector of images ({wrapper or 'unnamed'}) is not counted")


def _audio(fields: Fields, holder: Fields, wrapper_type: str, spec: ModelSpec) -> Iterator[OtherWeight]:
    section = holder.section("audio_config")
    if section is None:
        return
    tower = audio.TOWERS.get(_kind(section, wrapper_type))
    if tower is None:
        fields.note(f"the audio encoder ({_kind(section, wrapper_type) or 'unnamed'}) is not counted")
        return
    yield from tower(section, spec)


def _note_others(fields: Fields, holder: Fields) -> None:
    """A remark for each further object that sizes a network."""
    for key, value in holder.raw.items():
        sized = isinstance(value, Mapping) and _SIZES & value.keys()
        if sized and key.endswith("_config") and key not in _COUNTED:
            fields.note(f"what {key} describes is not counted")
