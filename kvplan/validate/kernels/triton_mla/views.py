"""A cache's bytes as the typed matrices that the kernel reads: latent, rotary part and, where there are any, scales.

The offsets follow from the core's formats: codes of the latent, its scales if it has groups, then the rotary part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kvplan.errors import BadInput
from kvplan.storage import BF16, FP8, FP8_SCALE_128, FP16, FP32, Storage, kv_format
from kvplan.validate.kernels.triton_mla.configs import LATENT_DIM, ROPE_DIM, canonical_kv_dtype, record_bytes

_DTYPES: Mapping[Storage, torch.dtype] = {
    FP32: torch.float32,
    BF16: torch.bfloat16,
    FP16: torch.float16,
    FP8: torch.float8_e4m3fn,
    FP8_SCALE_128: torch.float8_e4m3fn,
}


@dataclass(frozen=True, slots=True)
class CacheViews:
    """The same memory three times: latent [slots, 512], rope [slots, 64], scale [slots, 4] or None."""

    latent: Tensor
    rope: Tensor
    scale: Tensor | None


def cache_views(cache: Tensor, kv_dtype: str) -> CacheViews:
    """Views of a contiguous cache [blocks or sessions, slots of each, entry] of entries in `kv_dtype`.

    The entry may be bytes (uint8) or elements of the cache's own type; `BadInput` where its size is not the format's.
    """
    kv_dtype = canonical_kv_dtype(kv_dtype)
    entry_bytes = record_bytes(kv_dtype)
    if cache.dim() != 3 or not cache.is_contiguous() or cache.shape[2] * cache.element_size() != entry_bytes:
        found = f"{tuple(cache.shape)} of {cache.dtype}"
        raise BadInput(f"a {kv_dtype} MLA cache is contiguous [blocks, slots, {entry_bytes} B an entry], not {found}")
    latent, rope = (kv_format(kv_dtype).of(role) for role in ("latent", "rope"))
    entries = cache.view(torch.uint8).view(-1, entry_bytes)
    codes_bytes, rope_start = LATENT_DIM * latent.bits // 8, latent.vector_bytes(LATENT_DIM)
    return CacheViews(
        latent=_typed(entries, _DTYPES[latent], 0, LATENT_DIM),
        rope=_typed(entries, _DTYPES[rope], rope_start, ROPE_DIM),
        scale=_typed(entries, torch.float32, codes_bytes, LATENT_DIM // latent.group) if latent.group else None,
    )


def _typed(entries: Tensor, dtype: torch.dtype, start_bytes: int, width: int) -> Tensor:
    """Columns of the entries as another type."""
    first = start_bytes // dtype.itemsize
    return entries.view(dtype)[:, first : first + width]
