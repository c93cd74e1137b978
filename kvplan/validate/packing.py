"""How one token's cache record lies in bytes: quantise, pack, unpack, dequantise.

Every record type packs float tensors into uint8 [..., record_bytes] and back, and names the `KvFormat` of the core
whose bytes it must have. A record filled with 0xFF reads back as NaN in every format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from kvplan.cache import CacheTensor, PerToken
from kvplan.errors import UnknownName
from kvplan.storage import kv_format

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0
POISON = 0xFF
"""The byte of a slot that nobody may read: a NaN in bf16 (0xFFFF), e4m3 (0xFF) and fp32 (0xFFFFFFFF)."""


class Record(Protocol):
    """One token's bytes in one layer, for values [..., width]."""

    @property
    def kv_dtype(self) -> str:
        """The core's name of the format."""
        ...

    @property
    def tensors(self) -> tuple[CacheTensor, ...]:
        """What the record holds, as the core declares it."""
        ...

    @property
    def record_bytes(self) -> int:
        """Bytes that `pack` makes of one token."""
        ...

    def pack(self, values: Tensor) -> Tensor:
        """[..., width] -> uint8 [..., record_bytes]."""
        ...

    def unpack(self, records: Tensor) -> Tensor:
        """uint8 [..., record_bytes] -> [..., width] in the widest dtype that the record holds."""
        ...


def planned_record_bytes(record: Record) -> int:
    """Bytes of the record by the core's rule, to compare with those that it really has."""
    storage = kv_format(record.kv_dtype)
    return sum(tensor.bytes_per_slot(storage) for tensor in record.tensors)


def as_bytes(values: Tensor) -> Tensor:
    """The bytes of the last dimension."""
    return values.contiguous().view(torch.uint8)


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """bf16 values one after another: K then V of every head, or latent then rotary key."""

    tensors: tuple[CacheTensor, ...]
    kv_dtype: str = "bf16"

    @property
    def record_bytes(self) -> int:
        """Two bytes an element."""
        return 2 * sum(t.elements_per_slot for t in self.tensors)

    def pack(self, values: Tensor) -> Tensor:
        """Round to bf16."""
        return as_bytes(values.to(torch.bfloat16))

    def unpack(self, records: Tensor) -> Tensor:
        """bf16 view of the same memory."""
        return records.view(torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Fp8Record:
    """Every element in e4m3 under one scale for the whole tensor, which lies outside the cache (vLLM `fp8`)."""

    tensors: tuple[CacheTensor, ...]
    scale: float = 1.0
    kv_dtype: str = "fp8"

    @property
    def record_bytes(self) -> int:
        """One byte an element."""
        return sum(t.elements_per_slot for t in self.tensors)

    def pack(self, values: Tensor) -> Tensor:
        """Divide by the scale, saturate at 448, round to e4m3."""
        return as_bytes((values.float() / self.scale).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3))

    def unpack(self, records: Tensor) -> Tensor:
        """bf16 values."""
        return (records.view(E4M3).float() * self.scale).to(torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Fp8DsMlaRecord:
    """FlashMLA's record, vLLM `fp8_ds_mla`: 656 bytes at latent 512 and rope 64.

    latent in e4m3 (512 B), one fp32 scale for each 128 of it (16 B), rotary key in bf16 (128 B), in this order
    (FlashMLA README, "FP8 KV cache").
    """

    latent_dim: int = 512
    rope_dim: int = 64
    group: int = 128
    kv_dtype: str = "fp8_ds_mla"

    @property
    def tensors(self) -> tuple[CacheTensor, ...]:
        """Latent and rotary key."""
        return latent_tensors(self.latent_dim, self.rope_dim)

    @property
    def parts_bytes(self) -> list[int]:
        """Bytes of latent, scales and rotary key."""
        return [self.latent_dim, 4 * (self.latent_dim // self.group), 2 * self.rope_dim]

    @property
    def record_bytes(self) -> int:
        """All three."""
        return sum(self.parts_bytes)

    def pack(self, values: Tensor) -> Tensor:
        """Quantise the latent by groups, each to its own largest element; round the rotary key to bf16."""
        latent, rope = values.split([self.latent_dim, self.rope_dim], -1)
        groups = latent.float().unflatten(-1, (-1, self.group))
        scales = (groups.abs().amax(-1) / E4M3_MAX).clamp_min(torch.finfo(torch.float32).tiny)
        codes = (groups / scales[..., None]).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3).flatten(-2)
        return torch.cat([as_bytes(codes), as_bytes(scales), as_bytes(rope.to(torch.bfloat16))], -1)

    def unpack(self, records: Tensor) -> Tensor:
        """bf16 values."""
        codes, scales, rope = (part.contiguous() for part in records.split(self.parts_bytes, -1))
        groups = codes.view(E4M3).float().unflatten(-1, (-1, self.group))
        latent = (groups * scales.view(torch.float32)[..., None]).flatten(-2)
        return torch.cat([latent.to(torch.bfloat16), rope.view(torch.bfloat16)], -1)


def latent_tensors(latent_dim: int, rope_dim: int) -> tuple[CacheTensor, ...]:
    """The two parts of an MLA entry."""
    return CacheTensor("latent", 1, latent_dim, PerToken()), CacheTensor("rope", 1, rope_dim, PerToken())


LatentDtype = Literal["bf16", "fp8", "fp8_ds_mla"]
LATENT_DTYPES: tuple[LatentDtype, ...] = ("bf16", "fp8", "fp8_ds_mla")


def latent_record(kv_dtype: str, latent_dim: int = 512, rope_dim: int = 64) -> Record:
    """The record of an MLA entry in a KV dtype that kvplan can pack."""
    tensors = latent_tensors(latent_dim, rope_dim)
    if kv_dtype == "bf16":
        return PlainRecord(tensors)
    if kv_dtype == "fp8":
        return Fp8Record(tensors)
    if kv_dtype == "fp8_ds_mla":
        return Fp8DsMlaRecord(latent_dim, rope_dim)
    raise UnknownName.of("MLA record", kv_dtype, LATENT_DTYPES)
