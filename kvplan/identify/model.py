"""Which model a log speaks of: by its name, by the geometry of its GGUF file, or by its class and its cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.catalog import load_model, model_names
from kvplan.errors import BadInput, KvplanError, UnknownName
from kvplan.identify.names import spellings
from kvplan.identify.precision import as_loaded
from kvplan.identify.rates import fitting
from kvplan.identify.shape import Shape, shape_of

if TYPE_CHECKING:
    from kvplan.cache import CacheTensor
    from kvplan.logs.observed import Observed
    from kvplan.model import ModelSpec

Found = tuple["ModelSpec", tuple[str, ...]]


def model_of(observed: Observed, given: str | None) -> Found:
    """The model that the user names, else the one that the log means, with its weights as loaded; notes on guesses.

    `BadInput` or `UnknownName`, asking for MODEL, where the log names none or one that nothing bundled is like.
    """
    found = (load_model(given), ()) if given else _meant(observed)
    loaded, precision = as_loaded(found[0], observed)
    return loaded, (*found[1], *precision)


def _meant(observed: Observed) -> Found:
    return _named(observed) or _shaped(observed) or _built(observed) or _fetched(observed)


def _named(observed: Observed) -> Found | None:
    """By name, unless the file's geometry contradicts it. A folder of this machine is read where it holds a config."""
    shape = shape_of(observed.metadata)
    stated = (observed.model, observed.metadata.get("model_path"))
    texts = [text for text in stated if isinstance(text, str) and text]
    for text in texts:
        if _has_config(text):
            return load_model(text), ()
        spec = bundled(text)
        if spec and shape.fits(spec):
            return spec, ()
    return None


def bundled(text: str) -> ModelSpec | None:
    """The bundled model that a hub id, a path or a file's name means, quantized copies as what they are copies of."""
    for name in spellings(text):
        with suppress(KvplanError):
            return load_model(name)
    return None


def _has_config(folder: str) -> bool:
    try:
        return (Path(folder) / "config.json").is_file()
    except OSError:  # longer than a file name can be
        return False


def _shaped(observed: Observed) -> Found | None:
    """By the geometry of the GGUF file."""
    shape = shape_of(observed.metadata)
    if not shape.tells:
        return None
    return _any_of([spec for spec in _all() if shape.fits(spec)], f"{_said(shape)} of the file", observed)


def _said(shape: Shape) -> str:
    """`36 layers, width 4096`."""
    layers, width = (max(shape.facts[name]) for name in ("num_hidden_layers", "hidden_size"))
    return f"{layers} layers, width {width}"


def _built(observed: Observed) -> Found | None:
    """By the model's class, and what a token costs in its pool."""
    reading = observed.first("architecture")
    if reading is None:
        return None
    name = str(reading.value)
    of_class = [spec for spec in _all() if spec.architecture == name or _is_called(spec, name)]
    return _any_of(fitting(of_class, observed), f"its class {name} and its pool", observed)


def _is_called(spec: ModelSpec, architecture: str) -> bool:
    """Whether the class is the model's name: KimiK25ForConditionalGeneration wraps the decoder of another class."""
    stem = architecture.partition("For")[0].replace("_", "").lower()
    return re.sub(r"[^a-z0-9]", "", spec.name).startswith(stem)


def _all() -> Iterable[ModelSpec]:
    return map(load_model, model_names())


def _any_of(candidates: Sequence[ModelSpec], why: str, observed: Observed) -> Found | None:
    """The first of models that have one cache; None where there are none, `BadInput` where their caches differ."""
    if not candidates:
        return None
    names = [spec.name for spec in candidates]
    if len({_cache(spec) for spec in candidates}) > 1:
        raise BadInput(f"{observed.source}: {why} fit {', '.join(names)}; say which: kvplan reconcile LOG MODEL")
    same = f"; the cache of {', '.join(names[1:])} is the same" if names[1:] else ""
    return candidates[0], (f"model by {why}: {names[0]}{same}",)


def _cache(spec: ModelSpec) -> tuple[tuple[CacheTensor, ...], ...]:
    """The cache tensors of each layer, in order."""
    layers = {index: group.tensors() for group in spec.layer_groups for index in group.indices}
    return tuple(layers[index] for index in sorted(layers))


def _fetched(observed: Observed) -> Found:
    """From the hub, where the log states a hub id; or the error that asks for the model."""
    if not observed.model:
        raise BadInput(f"{observed.source}: names no model; say which: kvplan reconcile LOG MODEL")
    said = f"{observed.source}: the log's model {observed.model!r} is not bundled"
    unknown = f"{said}; say which it is: kvplan reconcile LOG MODEL"
    if observed.model.count("/") != 1 or observed.model.startswith(("/", ".", "~")):
        raise UnknownName(unknown)
    try:
        return load_model(observed.model), ()
    except KvplanError as error:
        raise UnknownName(f"{unknown} ({error})") from error
