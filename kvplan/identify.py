"""Which model and which GPU a log speaks of, where it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvplan.catalog import gpu_names, load_gpu, load_model
from kvplan.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec
    from kvplan.logs.observed import Observed
    from kvplan.model import ModelSpec

SAME_MEMORY = 0.004
"""Drivers report the same card within this share of each other."""
_SNAPSHOT = re.compile(r"models--([^/]+?)--([^/]+)")


def model_of(observed: Observed, given: str | None) -> ModelSpec:
    """The model that the user names, else the one that the log names: a hub id, a hub cache path, or a folder's name."""
    if given:
        return load_model(given)
    if not observed.model:
        raise BadInput(f"{observed.source}: names no model; say which: kvplan reconcile LOG MODEL")
    for name in _names(observed.model):
        try:
            return load_model(name)
        except UnknownName:
            continue
    raise UnknownName(f"{observed.source}: the log's model {observed.model!r} is not in the catalogue; name it: kvplan reconcile LOG MODEL")


def _names(text: str) -> list[str]:
    """What to look up: the text, the hub id inside a cache path, the last one and two parts of a path."""
    cached = _SNAPSHOT.search(text)
    parts = [p for p in text.split("/") if p]
    names = [text] if not text.startswith(("/", ".")) else []
    if cached:
        names.append(f"{cached[1]}/{cached[2]}")
    return [*names, "/".join(parts[-2:]), *parts[-1:]]


def gpu_of(observed: Observed, given: str | None) -> tuple[GpuSpec, str | None]:
    """The GPU that the user names, else the one whose memory the log states; and a note where it is a guess."""
    if given:
        return load_gpu(given), None
    total = observed.first("gpu_total_bytes")
    if total is None:
        return load_gpu("h100"), "the log states no GPU; block rules of an H100 are assumed, give --gpu"
    gpus = [load_gpu(name) for name in gpu_names()]
    near = sorted(gpus, key=lambda gpu: abs(gpu.memory_bytes - total.number))
    alike = [g.name for g in near if abs(g.memory_bytes / total.number - 1) < SAME_MEMORY]
    if not alike:
        raise BadInput(f"{observed.source}: no GPU of the catalogue has {total.number / 2**30:.2f} GiB; give --gpu")
    note = f"GPU by its memory: {alike[0]}" + (f" ({', '.join(alike[1:4])} have as much; give --gpu)" if alike[1:] else "")
    return near[0], note
