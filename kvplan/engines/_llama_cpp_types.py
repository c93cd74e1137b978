"""llama.cpp's cache types: which there are, and which a deployment gets for K and for V."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.engines.base import choose
from kvplan.errors import UnknownName, Unsupported
from kvplan.storage import KvFormat, kv_format

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment

CACHE_TYPES = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""--cache-type-k and --cache-type-v."""
K_ROLES = {"k", "latent", "rope", "entry", "entry_rope", "index_k"}
"""Tensors that are stored as --cache-type-k; all others as --cache-type-v."""


def _type(name: str) -> KvFormat:
    fmt = kv_format(name)
    if fmt.name not in CACHE_TYPES:
        raise UnknownName.of("llama.cpp cache type", name, CACHE_TYPES)
    return fmt


def cache_types(d: Deployment) -> tuple[KvFormat, KvFormat]:
    """--cache-type-k and --cache-type-v; f16 unless stated. Blocks of 32 must divide every head."""
    default = "fp16" if d.kv_dtype == "auto" else d.kv_dtype
    key, value = (_type(str(choose(d.engine_args, name, default))) for name in ("type_k", "type_v"))
    single = any(a.kind in {"mla", "compressed"} for _, a in d.spec.mixers())
    if single and key != value and "type_v" in d.engine_args:
        raise Unsupported(
            f"llama.cpp: model does not support different K ({key.name}) and V ({value.name}) cache types"
        )
    for _, attention in d.spec.mixers():
        for tensor in attention.tensors():
            fmt = key if tensor.role in K_ROLES else value
            if fmt.default.group == 32 and tensor.law.slots_per_token() and tensor.dim % 32:
                raise Unsupported(
                    f"llama.cpp: cache type {fmt.name} with block size 32 does not divide head dim {tensor.dim}"
                )
    return key, value
