"""How weight formats store a matrix, scales included, as engines load them: a name -> a `Storage`.

A name is a base and, where the scales' group is not the usual one, `_g` and its size: int4_g32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from kvplan.errors import BadInput, UnknownName
from kvplan.storage import FP16, FP32, Storage


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """`storage` of a matrix; `expert_tile`: what the sides of an expert's matrix (hidden, columns) are padded to."""

    storage: Storage
    expert_tile: tuple[int, int] = (1, 1)


FORMATS: Mapping[str, WeightFormat] = {
    "bf16": WeightFormat(FP16),
    "fp32": WeightFormat(FP32),
    "fp8": WeightFormat(Storage("fp8", 8)),
    "fp8_channel": WeightFormat(Storage("fp8, fp32 scale per row", 8, scale_bits=32)),
    "fp8_block": WeightFormat(Storage("fp8, fp32 scale per 128 x 128", 8, scale_bits=32, group=128 * 128)),
    "mxfp8": WeightFormat(Storage("mxfp8", 8, scale_bits=8, group=32)),
    "int8": WeightFormat(Storage("int8", 8)),
    "int8_channel": WeightFormat(Storage("int8, 32-bit scale per row", 8, scale_bits=32)),
    "int4": WeightFormat(Storage("int4, 16-bit scale and 4-bit zero per 128", 4, scale_bits=20, group=128)),
    "int4_g32": WeightFormat(Storage("int4, 16-bit scale per 32", 4, scale_bits=16, group=32)),
    "nf4": WeightFormat(Storage("nf4, fp32 scale per 64", 4, scale_bits=32, group=64)),
    "nvfp4": WeightFormat(Storage("nvfp4", 4, scale_bits=8, group=16)),
    "mxfp4": WeightFormat(Storage("mxfp4", 4, scale_bits=8, group=32), expert_tile=(256, 128)),
}
"""MXFP4's tile is Marlin's; other kernels pad to as much or a little less (vLLM `fused_moe/oracle/mxfp4.py`)."""
_GROUP = re.compile(r"(.+)_g(\d{1,6})")


@cache
def weight_format(name: str, *, where: str = "") -> WeightFormat:
    """The format of a name; `UnknownName`, with the nearest names, for any other."""
    if name in FORMATS:
        return FORMATS[name]
    grouped = _GROUP.fullmatch(name)
    if grouped is None or grouped[1] not in FORMATS:
        raise UnknownName.of("weight format", name, FORMATS, where=where)
    base, group = FORMATS[grouped[1]], int(grouped[2])
    if not base.storage.scale_bits or not group:
        raise BadInput(f"{where}weight format {name!r}: {grouped[1]} has no scales in groups of {group}")
    return replace(base, storage=replace(base.storage, name=name, group=group))
