"""From a config.json to a `ModelSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvplan.errors import BadInput
from kvplan.hf import rope
from kvplan.hf.fields import Fields
from kvplan.hf.kinds import FAMILIES, PLAIN, Family
from kvplan.hf.locate import config_path, decoder_path, follow, read_json, squash
from kvplan.hf.mlps import mlp_for
from kvplan.hf.quantization import quantization
from kvplan.hf.refuse import refuse_unexplained
from kvplan.hf.softmax import Layer
from kvplan.mlp import Mlp
from kvplan.model import LayerGroup, ModelSpec, layer_ranges

QUANT_NAME = "hf_quant_config.json"


def import_config(path: Path) -> ModelSpec:
    """Read a config.json, or the directory that holds one; hf_quant_config.json beside it is read for its KV hint.

    `BadInput` or `Unsupported`, in one line that names file and key, for what cannot be understood.
    """
    file = config_path(path)
    config = read_json(file)
    beside = file.with_name(QUANT_NAME)
    quant = read_json(beside) if beside != file and beside.is_file() else None
    name = file.parent.resolve().name if file.name == "config.json" else file.stem
    return spec_from_config(config, name=name, source=str(file), quant=quant)


def spec_from_config(
    config: Mapping[str, Any], *, name: str, source: str, quant: Mapping[str, Any] | None = None
) -> ModelSpec:
    """The spec of a parsed config. `source` is named in errors and kept in the spec; `quant`: hf_quant_config.json."""
    path = decoder_path(config, source)
    decoder = follow(config, path)
    where = ": ".join((source, *path))
    architecture = _architecture(config, decoder, where)
    model_type = _model_type(decoder, architecture, where)
    fields = Fields(decoder, where, nested=bool(path))
    family = FAMILIES.get(model_type)
    if family is None:
        fields.note(f"model_type {model_type!r} is unknown: read as plain attention, as no key speaks of anything else")
    groups = _groups(fields, (family or PLAIN))
    wrapper = Fields(config, source)
    spec = ModelSpec(
        name=name,
        source=source,
        model_type=model_type,
        torch_dtype=_dtype(fields, wrapper),
        hidden_size=fields.need_size("hidden_size"),
        vocab_size=fields.count("vocab_size") or wrapper.count("vocab_size") or 0,
        max_position_embeddings=rope.max_context(fields),
        layer_groups=groups,
        architecture=architecture,
        tie_word_embeddings=fields.flag("tie_word_embeddings", wrapper.flag("tie_word_embeddings")),
        rope_scaling=rope.rope_scaling(fields),
        quantization=quantization((config, decoder), quant, source),
        notes=tuple(fields.notes),
    )
    refuse_unexplained(fields, model_type)
    return spec


def _architecture(config: Mapping[str, Any], decoder: Mapping[str, Any], where: str) -> str | None:
    names = config.get("architectures") or decoder.get("architectures")
    if names is None:
        return None
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise BadInput(f"{where}: architectures: is not a list of names")
    return names[0]


def _model_type(decoder: Mapping[str, Any], architecture: str | None, where: str) -> str:
    model_type = decoder.get("model_type")
    if model_type is None and architecture:
        squashed = squash(architecture)
        model_type = next((t for t in FAMILIES if squash(t) == squashed), squashed)
    if not isinstance(model_type, str) or not model_type:
        raise BadInput(f"{where}: model_type: missing, and architectures names no family that is known")
    return model_type


def _dtype(fields: Fields, wrapper: Fields) -> str:
    name = fields.text("torch_dtype") or wrapper.text("torch_dtype")
    if name is None:
        fields.note("torch_dtype is absent: bfloat16 assumed")
        return "bfloat16"
    return name.removeprefix("torch.")


def _groups(fields: Fields, family: Family) -> tuple[LayerGroup, ...]:
    layers: list[tuple[Layer, Mlp | None]] = [(a, mlp_for(fields, i)) for i, a in enumerate(family.layers(fields))]
    return group_layers(layers)


def group_layers(layers: Sequence[tuple[Layer, Mlp | None]]) -> tuple[LayerGroup, ...]:
    """Layers that are alike, together, in the order in which each kind first appears."""
    members: dict[tuple[Layer, Mlp | None], list[int]] = {}
    for index, layer in enumerate(layers):
        members.setdefault(layer, []).append(index)
    return tuple(
        LayerGroup(layers=layer_ranges(indices), attention=attention, mlp=mlp)
        for (attention, mlp), indices in members.items()
    )
