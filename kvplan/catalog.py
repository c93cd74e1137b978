"""Finds models and GPUs by name, path or hub id, and reads them once: the border to files that people write.

A spec that was read is kept as plain data (`kvplan.diskcache`) beside its bytes and the fields of the dataclass that it
became, so that the next start needs neither YAML nor pydantic.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kvplan import __version__
from kvplan.diskcache import recall, remember
from kvplan.errors import BadInput, KvplanError, MissingExtra, UnknownName
from kvplan.files import MAX_SPEC_BYTES, read_bytes
from kvplan.plain import from_plain, schema, to_plain

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec
    from kvplan.model import ModelSpec

T = TypeVar("T")
_PACKAGE = Path(__file__).parent
GPU_FOLDER = _PACKAGE / "gpus"
MODEL_FOLDER = next((f for f in (_PACKAGE / "model_specs", _PACKAGE.parent / "model_specs") if f.is_dir()), _PACKAGE)
"""Inside the package in a wheel, beside it in a source tree."""
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")


def gpu_names() -> tuple[str, ...]:
    """Names of the bundled GPUs, sorted."""
    return _stems(GPU_FOLDER)


def model_names() -> tuple[str, ...]:
    """Names of the bundled models, sorted."""
    return _stems(MODEL_FOLDER)


def load_gpu(text: str) -> GpuSpec:
    """A GPU by its bundled name or any usual spelling of it, by the path of a YAML file, or `local`: this machine's."""
    from kvplan.gpu import GpuSpec, find

    if text == "local":
        return _local_gpu()
    if _slug(text) in gpu_names():
        return _bundled_gpu(_slug(text))
    if _is_path(text):
        return read_spec(Path(text).expanduser(), GpuSpec)
    return _bundled_gpu(find(text, _index(GPU_FOLDER, "aliases")))


def load_model(text: str) -> ModelSpec:
    """A model by its bundled name, the path of a spec, of a config.json or of its folder, or a hub id.

    Hub ids that a bundled spec lists resolve offline, by the repository's name alone too; others need the hub extra.
    """
    if _slug(text) in model_names():
        return _bundled_model(_slug(text))
    if _is_path(text):
        return _model_of_file(Path(text).expanduser())
    hub_ids = _index(MODEL_FOLDER, "hub_ids")
    for name, ids in hub_ids.items():
        if any(text.lower() in {i.lower(), i.lower().partition("/")[2]} for i in ids):
            return _bundled_model(name)
    known = [*hub_ids, *(i for ids in hub_ids.values() for i in ids)]
    unknown = UnknownName.of("model", text, known)
    if _HUB_ID.fullmatch(text):
        return _model_of_hub(text, unknown)
    raise unknown


def read_spec(path: Path, type_: type[T]) -> T:
    """The `type_` that a YAML file describes; from the cache where the same bytes were read before."""
    data, target = read_bytes(path, MAX_SPEC_BYTES), cast(Any, type_)
    key, made_from = f"{type_.__name__} {path.absolute()}", f"{__version__}\n{schema(target)}\n{data.decode('latin-1')}"
    plain = recall(key, made_from)
    if plain is not None:
        with suppress(KeyError, TypeError, ValueError, KvplanError):
            return from_plain(type_, plain)
    from kvplan.specfile import parse_yaml

    spec = parse_yaml(data, type_, str(path))
    remember(key, made_from, to_plain(spec))
    return spec


def dump_model(spec: ModelSpec, path: Path) -> None:
    """Write a spec as YAML for people to read and edit; the whole file or nothing."""
    from kvplan.specfile import write_yaml

    write_yaml(spec, path)


@cache
def _bundled_gpu(name: str) -> GpuSpec:
    from kvplan.gpu import GpuSpec

    return read_spec(GPU_FOLDER / f"{name}.yaml", GpuSpec)


@cache
def _bundled_model(name: str) -> ModelSpec:
    from kvplan.model import ModelSpec

    return read_spec(MODEL_FOLDER / f"{name}.yaml", ModelSpec)


@cache
def _stems(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(e.name.removesuffix(".yaml") for e in os.scandir(folder) if e.name.endswith(".yaml")))


@cache
def _index(folder: Path, field: str) -> Mapping[str, list[str]]:
    """Bundled name -> its other names (the list under `field`), remembered for this listing of the folder."""
    entries = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in os.scandir(folder))
    key, made_from = f"{field} {folder}", f"{__version__}\n{entries}"
    index: dict[str, list[str]] | None = recall(key, made_from)
    if index is None:
        index = {name: _other_names(folder / f"{name}.yaml", field) for name in _stems(folder)}
        remember(key, made_from, index)
    return index


def _other_names(path: Path, field: str) -> list[str]:
    from kvplan.strict_yaml import parse

    names: list[str] = parse(read_bytes(path, MAX_SPEC_BYTES), str(path)).get(field, [])
    return names


def _slug(text: str) -> str:
    return re.sub(r"[\s_]+", "-", text.strip().lower())


def _is_path(text: str) -> bool:
    """Whether a text names a file or folder: it says so by its form, or there is one."""
    if text.endswith((".yaml", ".yml", ".json")) or text.startswith((".", "~", os.sep)):
        return True
    try:
        return bool(text) and Path(text).exists()
    except OSError:  # longer than a file name can be
        return False


def _model_of_file(path: Path) -> ModelSpec:
    if path.suffix in {".yaml", ".yml"}:
        from kvplan.model import ModelSpec

        return read_spec(path, ModelSpec)
    from kvplan.hf import import_config

    return import_config(path)


def _model_of_hub(hub_id: str, unknown: UnknownName) -> ModelSpec:
    try:
        hub: Any = import_module("huggingface_hub")
    except ImportError:
        raise MissingExtra(f"{unknown}; to fetch it from the hub: pip install 'kvplan[hub]'") from None
    try:
        config = hub.hf_hub_download(hub_id, "config.json")
    except (OSError, ValueError) as error:
        raise BadInput(f"{hub_id}: config.json cannot be fetched: {error}") from error
    with suppress(OSError, ValueError):  # few repositories have one
        hub.hf_hub_download(hub_id, "hf_quant_config.json")
    return _model_of_file(Path(config))


def _local_gpu() -> GpuSpec:
    """This machine's device 0: the catalogue's figures where it is known, its own memory in any case."""
    from kvplan.gpu import GpuSpec
    from kvplan.gpu_local import local_device

    device = local_device()
    here = f"this machine, read through {device.read_by}"
    with suppress(UnknownName):
        known = load_gpu(device.name)
        if device.sm_count in (None, known.sm_count):  # drivers give several Jetsons one name
            return replace(known, memory_bytes=device.memory_bytes, sources={**known.sources, "memory_bytes": here})
    figures = {f: getattr(device, f) for f in ("memory_bytes", "compute_capability", "sm_count", "gfx")}
    return GpuSpec(
        name=_slug(device.name),
        vendor="amd" if device.gfx else "nvidia",
        architecture=device.gfx or "unknown",
        sources={f: here for f, value in figures.items() if value is not None},
        **figures,
    )
