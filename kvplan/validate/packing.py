"""How one token's cache record lies in bytes: quantise, pack, unpack, dequantise.

The layout follows from the core: each tensor of a record is stored as its `KvFormat` says, in the order in which the
attention kind declares them, codes before their scales. MLA under `fp8_ds_mla` is therefore FlashMLA's record: 512
bytes of e4m3, four fp32 scales of 128 elements each, 64 rotary elements in bf16 = 656 bytes (FlashMLA README).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kvplan.cache import CacheTensor, PerToken
from kvplan.errors import Unsupported
from kvplan.storage import BF16, FP8, FP8_SCALE_128, Storage, kv_format

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
POISON = 0xFF
"""The byte of a slot that nobody may read: a NaN in bf16 (0xFFFF), e4m3 (0xFF) and fp32 (0xFFFFFFFF)."""


class Codec(Protocol):
    """Vectors [..., dim] to bytes [..., n] and back; `unpack` gives bf16."""

    def pack(self, values: Tensor) -> Tensor:
        """Quantise."""
        ...

    def unpack(self, packed: Tensor) -> Tensor:
        """Dequantise; a view where the stored values are bf16."""
        ...

    def unpack_scratch_bytes(self, elements: int) -> int:
        """What `unpack` of this many elements allocates at its peak, result included."""
        ...


def _as_bytes(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8)


@dataclass(frozen=True, slots=True)
class Bf16Codec:
    """Two bytes an element."""

    def pack(self, values: Tensor) -> Tensor:
        """Round to nearest."""
        return _as_bytes(values.to(torch.bfloat16))

    def unpack(self, packed: Tensor) -> Tensor:
        """The same memory."""
        return packed.view(torch.bfloat16)

    def unpack_scratch_bytes(self, elements: int) -> int:
        """Nothing, however many."""
        return 0 * elements


@dataclass(frozen=True, slots=True)
class E4m3Codec:
    """One byte an element; the scale of the whole tensor is 1 and lies outside the cache (vLLM's `fp8`)."""

    def pack(self, values: Tensor) -> Tensor:
        """Saturate at 448 and round."""
        return _as_bytes(values.float().clamp(-E4M3_MAX, E4M3_MAX).to(E4M3))

    def unpack(self, packed: Tensor) -> Tensor:
        """Exact: every e4m3 value is a bf16 value."""
        return packed.view(E4M3).to(torch.bfloat16)

    def unpack_scratch_bytes(self, elements: int) -> int:
        """The bf16 copy."""
        return 2 * elements


@dataclass(frozen=True, slots=True)
class ScaledE4m3Codec:
    """e4m3 codes of the whole vector, then one fp32 scale for each `group` of them."""

    group: int

    def pack(self, values: Tensor) -> Tensor:
        """Scale each group so that its largest element becomes 448."""
        groups = torch.unflatten(values.float(), -1, (-1, self.group))
        scales = (groups.abs().amax(-1) / E4M3_MAX).clamp_min(torch.finfo(torch.float32).tiny)
        codes = (groups / scales[..., None]).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3).flatten(-2)
        return torch.cat([_as_bytes(codes), _as_bytes(scales)], -1)

    def unpack(self, packed: Tensor) -> Tensor:
        """Code times scale, rounded to bf16."""
        dim = packed.shape[-1] * self.group // (self.group + 4)
        codes, scales = torch.split(packed, [dim, packed.shape[-1] - dim], -1)
        groups = torch.unflatten(codes.view(E4M3).float(), -1, (-1, self.group))
        return groups.mul_(scales.contiguous().view(torch.float32)[..., None]).flatten(-2).to(torch.bfloat16)

    def unpack_scratch_bytes(self, elements: int) -> int:
        """The fp32 products with the scales, or with the bf16 copy."""
        return 4 * elements + max(4 * elements // self.group, 2 * elements)


_CODECS: dict[Storage, Codec] = {BF16: Bf16Codec(), FP8: E4m3Codec(), FP8_SCALE_128: ScaledE4m3Codec(128)}


def _codec(storage: Storage) -> Codec:
    """The codec of a storage; `Unsupported` where kvplan plans a format that it cannot write."""
    if storage not in _CODECS:
        known = ", ".join(s.name for s in _CODECS)
        raise Unsupported(f"validate cannot pack a cache tensor stored as {storage.name!r}; it packs {known}")
    return _CODECS[storage]


@dataclass(frozen=True, slots=True)
class Record:
    """One token's bytes in one layer: the values of `tensors`, one after another, as `kv_dtype` stores them."""

    tensors: tuple[CacheTensor, ...]
    kv_dtype: str = "bf16"

    @property
    def width(self) -> int:
        """Elements of one token."""
        return sum(t.elements_per_slot for t in self.tensors)

    @property
    def planned_bytes(self) -> int:
        """Bytes of the record by the core's rule; `pack` must make exactly as many."""
        storage = kv_format(self.kv_dtype)
        return sum(t.bytes_per_slot(storage) for t in self.tensors)

    @property
    def is_stored_in_bf16(self) -> bool:
        """Whether values are read where they lie."""
        return all(isinstance(codec, Bf16Codec) for codec, _, _ in self._parts())

    def pack(self, values: Tensor) -> Tensor:
        """[..., width] -> uint8 [..., record bytes]."""
        parts = torch.split(values, [elements for _, elements, _ in self._parts()], -1)
        return torch.cat([codec.pack(v) for (codec, _, _), v in zip(self._parts(), parts, strict=True)], -1)

    def unpack(self, packed: Tensor) -> Tensor:
        """uint8 [..., record bytes] -> bf16 [..., width]; a view where all of it is stored as bf16."""
        parts = torch.split(packed, [size for _, _, size in self._parts()], -1)
        values = [codec.unpack(p) for (codec, _, _), p in zip(self._parts(), parts, strict=True)]
        return values[0] if len(values) == 1 else torch.cat(values, -1)

    def unpack_scratch_bytes(self, tokens: int) -> int:
        """What `unpack` of this many tokens allocates at its peak, result included."""
        parts, done_bytes, peak_bytes = self._parts(), 0, 0
        for codec, elements, _ in parts:
            peak_bytes = max(peak_bytes, done_bytes + codec.unpack_scratch_bytes(elements * tokens))
            done_bytes += 0 if isinstance(codec, Bf16Codec) else 2 * elements * tokens
        joined_bytes = 2 * self.width * tokens if len(parts) > 1 else 0
        return max(peak_bytes, done_bytes + joined_bytes)

    def _parts(self) -> Sequence[tuple[Codec, int, int]]:
        """(codec, elements, bytes) of each stretch of the record; neighbours without scales join if stored alike."""
        storage = kv_format(self.kv_dtype)
        parts: list[tuple[Codec, int, int]] = []
        for tensor in self.tensors:
            codec, size = _codec(storage.of(tensor.role)), tensor.bytes_per_slot(storage)
            if parts and parts[-1][0] == codec and not isinstance(codec, ScaledE4m3Codec):
                _, elements, before = parts.pop()
                parts.append((codec, elements + tensor.elements_per_slot, before + size))
            else:
                parts.append((codec, tensor.elements_per_slot, size))
        return parts


LATENT_DTYPES = ("bf16", "fp8", "fp8_ds_mla")
"""KV dtypes in which kvplan runs MLA decode."""


def latent_record(kv_dtype: str, latent_dim: int = 512, rope_dim: int = 64) -> Record:
    """An MLA entry: latent, then rotary key."""
    return Record(
        (CacheTensor("latent", 1, latent_dim, PerToken()), CacheTensor("rope", 1, rope_dim, PerToken())), kv_dtype
    )
