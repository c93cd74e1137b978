"""From a config.json to a `ModelSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvplan.hf import rope
from kvplan.hf.defaults import class_defaults, tied_by_default
from kvplan.hf.fields import Fields
from kvplan.hf.identity import Identity, identify
from kvplan.hf.locate import CONFIG_NAME, config_path, decoder_path, follow, native_names, read_json
from kvplan.hf.mlps import mlp_for
from kvplan.hf.mtp import mtp_layers
from kvplan.hf.parameters import with_parameters
from kvplan.hf.quantization import quantization
from kvplan.hf.refuse import refuse_unexplained
from kvplan.hf.softmax import Layer
from kvplan.layers import layer_ranges
from kvplan.mlp import Mlp
from kvplan.model import LayerGroup, ModelSpec
from kvplan.storage import TORCH_DTYPES

QUANT_NAME = "hf_quant_config.json"


def import_config(path: Path) -> ModelSpec:
    """Read a config.json, or the directory that holds one; hf_quant_config.json beside it is read for its KV hint.

    `BadInput` or `Unsupported`, in one line that names file and key, for what cannot be understood.
    """
    file = config_path(path)
    config = read_json(file)
    beside = file.with_name(QUANT_NAME)
    quant = read_json(beside) if file.name == CONFIG_NAME and beside.is_file() else None
    name = file.resolve().parent.name if file.name == CONFIG_NAME else file.stem
    return spec_from_config(config, name=name or "model", source=str(file), quant=quant)


def spec_from_config(
    config: Mapping[str, Any], *, name: str, source: str, quant: Mapping[str, Any] | None = None
) -> ModelSpec:
    """The spec of a parsed config. `source` is named in errors and kept in the spec; `quant`: hf_quant_config.json."""
    config = native_names(config)
    path = decoder_path(config, source)
    decoder, wrapper = follow(config, path), Fields(config, source)
    fields = Fields(decoder, ": ".join((source, *path)), wrapper=wrapper if path else None)
    identity = identify(fields, config)
    fields.defaults = class_defaults(identity.model_type)
    layers = identity.family.layers(fields)
    spec = ModelSpec(
        name=name,
        source=source,
        model_type=identity.model_type,
        torch_dtype=_dtype(fields, wrapper),
        hidden_size=fields.need_size("hidden_size"),
        vocab_size=_vocab(fields, wrapper),
        max_position_embeddings=rope.max_context(fields),
        layer_groups=_groups(fields, layers, identity),
        architecture=identity.architecture,
        tie_word_embeddings=_tied(fields, wrapper, identity),
        mamba_ssm_dtype=fields.text("mamba_ssm_cache_dtype") or fields.text("mamba_ssm_dtype"),
        rope_scaling=rope.rope_scaling(fields),
        quantization=quantization((config, decoder), quant, source),
        mtp=_mtp_groups(fields, layers),
        notes=tuple(fields.notes),  # the last argument: it is read after all that add to it
    )
    if fields.raw.get("use_bidirectional_attention") is True and not path:
        raise fields.bad("use_bidirectional_attention", "makes an encoder of it: it keeps no KV cache")
    refuse_unexplained(fields, identity.model_type)
    return with_parameters(spec, decoder, config)


def _dtype(fields: Fields, wrapper: Fields) -> str:
    name = fields.text("torch_dtype") or wrapper.text("torch_dtype")
    if name is None:
        fields.note("torch_dtype is absent: bfloat16 assumed")
        return "bfloat16"
    name = name.removeprefix("torch.")
    if name not in TORCH_DTYPES:
        raise fields.bad(fields.key("torch_dtype"), f"is not a dtype of weights ({', '.join(TORCH_DTYPES)})")
    return name


def _vocab(fields: Fields, wrapper: Fields) -> int:
    size = fields.count("vocab_size") or wrapper.count("vocab_size") or fields.optional_size("vocab_size")
    if size is None:
        fields.note("vocab_size is absent: embeddings and head cannot be counted")
    return size or 0


def _tied(fields: Fields, wrapper: Fields, identity: Identity) -> bool:
    """Stated in the decoder or in the wrapper, under three names; else the default of the class."""
    for name in ("tie_word_embeddings", "share_input_output_layers", "use_embedding_sharing", "tie_embedding"):
        for level in (fields, wrapper):
            if level.has(name):
                return level.flag(name)
    return tied_by_default(identity.model_type)


def _groups(fields: Fields, layers: Sequence[Layer], identity: Identity) -> tuple[LayerGroup, ...]:
    apart = fields.apart()
    mlps = (mlp_for(apart, i) if identity.family.has_mlp else None for i in range(len(layers)))
    return group_layers(list(zip(layers, mlps, strict=True)))


def _mtp_groups(fields: Fields, layers: Sequence[Layer]) -> tuple[LayerGroup, ...]:
    mlp = mlp_for(fields.apart(), len(layers) - 1)
    return group_layers([(attention, mlp) for attention in mtp_layers(fields, layers)], first=len(layers))


def group_layers(layers: Sequence[tuple[Layer, Mlp | None]], *, first: int = 0) -> tuple[LayerGroup, ...]:
    """Layers that are alike, together, in the order in which each kind first appears; indices count from `first`."""
    members: dict[tuple[Layer, Mlp | None], list[int]] = {}
    for index, layer in enumerate(layers, start=first):
        members.setdefault(layer, []).append(index)
    return tuple(
        LayerGroup(layers=layer_ranges(indices), attention=attention, mlp=mlp)
        for (attention, mlp), indices in members.items()
    )
