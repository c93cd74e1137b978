"""Element formats: how many bytes one vector (one head of one token, or one state) takes.

A `Storage` is bits per element, scales per group of elements, pad and alignment. A `KvFormat` is what a KV dtype flag
means: one `Storage` for most tensors, others for the roles that it treats differently. Published record sizes fall
out of the parts: MLA `fp8_ds_mla` = 512 x 1 + 4 x 4 + 64 x 2 = 656 B (FlashMLA's sparse layout); DeepSeek-V4's
record = 448 x 1 + 7 + 1 + 64 x 2 = 584 B; a GGML q8_0 block = (32 x 8 + 16) bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from kvplan.arith import cdiv, round_up
from kvplan.errors import UnknownName, Unsupported

Role = Literal[
    "k", "v", "latent", "rope", "index_k", "entry", "entry_rope", "compressor_state", "conv_state", "recurrent_state"
]  # fmt: skip
"""What a cache tensor holds. k, v: attention heads. latent, rope: the two parts of an MLA record. index_k: keys of a
sparse indexer. entry, entry_rope: the two parts of a shared key-value record compressed along the sequence.
compressor_state: what a sequence compressor still has to fold. conv_state, recurrent_state: fixed-size states."""


@dataclass(frozen=True, slots=True)
class Storage:
    """How one vector of elements lies in memory.

    `bits` per element; `scale_bits` for every `group` elements (`group` None: one scale for the vector); then
    `pad_bytes`, and the whole rounded up to `align_bytes`. Per-tensor scales are outside the cache and not counted.
    """

    name: str
    bits: int
    scale_bits: int = 0
    group: int | None = None
    pad_bytes: int = 0
    align_bytes: int = 1

    def vector_bytes(self, dim: int) -> int:
        """Bytes of `dim` elements with their scales and padding; 0 for an empty vector."""
        if dim == 0:
            return 0
        scales_bytes = cdiv(cdiv(dim, self.group or dim) * self.scale_bits, 8)
        return round_up(cdiv(dim * self.bits, 8) + scales_bytes + self.pad_bytes, self.align_bytes)


FP32 = Storage("fp32", 32)
BF16 = Storage("bf16", 16)
FP16 = Storage("fp16", 16)
FP8 = Storage("fp8", 8)
FP8_SCALE_128 = Storage("fp8+fp32/128", 8, scale_bits=32, group=128)
"""FlashMLA's latent and the DSA indexer key: one fp32 scale for every 128 fp8 elements (vllm.md, engines.md)."""
FP8_UE8M0_64 = Storage("fp8+ue8m0/64", 8, scale_bits=8, group=64, pad_bytes=1)
"""DeepSeek-V4's shared key-value record: one 8-bit exponent for every 64 elements, one pad byte (FlashMLA)."""
NVFP4 = Storage("nvfp4", 4, scale_bits=8, group=16)
TORCH_DTYPES: Mapping[str, Storage] = {"float32": FP32, "bfloat16": BF16, "float16": FP16, "half": FP16, "float": FP32}

_STATE_ROLES: Mapping[Role, Storage] = {
    "index_k": FP8_SCALE_128,
    "conv_state": BF16,
    "recurrent_state": FP32,
    "compressor_state": FP32,
}
"""Roles that a KV dtype flag leaves alone: engines keep indexer keys in fp8 and states in the model's or full
precision whatever the flag says (vllm.md section 1, engines.md section 1)."""


@dataclass(frozen=True, slots=True)
class KvFormat:
    """What a KV dtype means for each role of cache tensor. `refuses`: roles that it cannot hold."""

    name: str
    default: Storage
    roles: Mapping[Role, Storage] = field(default_factory=dict)
    refuses: frozenset[Role] = frozenset()

    def of(self, role: Role) -> Storage:
        """The storage of one role; `Unsupported` where this format has no record for it."""
        if role in self.refuses:
            raise Unsupported(f"kv dtype {self.name!r} cannot store a {role!r} tensor; use bf16, fp8 or auto")
        return self.roles.get(role) or _STATE_ROLES.get(role) or self.default

    def with_roles(self, **storages: Storage) -> KvFormat:
        """A copy in which the named roles are stored otherwise, as an engine does it."""
        return replace(self, roles={**self.roles, **storages})  # type: ignore[dict-item]

    def plain(self) -> KvFormat:
        """The same element width for every kind of layer, without the records of this one."""
        return KvFormat(self.default.name, self.default) if self.refuses else self

    def __hash__(self) -> int:
        return hash(self.name)  # cheap, for formats are keys of many caches; equality still compares all


_ONLY_HEADS: frozenset[Role] = frozenset({"latent", "rope", "entry", "entry_rope"})
_ONLY_LATENT: frozenset[Role] = frozenset({"k", "v"})


def _ggml(name: str, bits: int, scale_bits: int) -> KvFormat:
    """A GGML block of 32 elements; indexer keys take the K type too (engines.md section 3)."""
    storage = Storage(name, bits, scale_bits=scale_bits, group=32)
    return KvFormat(name, storage, {"index_k": storage})


def _inline_scale(name: str, bits: int) -> KvFormat:
    """One fp32 scale inside each K and each V vector (vLLM's per-token-head kinds)."""
    return KvFormat(name, Storage(name, bits, scale_bits=32), refuses=_ONLY_HEADS)


def _turboquant(name: str, key_bits: int, key_scale_bits: int, value_bits: int) -> KvFormat:
    """vLLM's TurboQuant: keys with a 16-bit norm (fp8 keys have none), values with a 32-bit scale and zero point."""
    values = Storage(f"{name} values", value_bits, scale_bits=32)
    return KvFormat(
        name, Storage(f"{name} keys", key_bits, scale_bits=key_scale_bits), {"v": values}, refuses=_ONLY_HEADS
    )


FORMATS: Mapping[str, KvFormat] = {
    f.name: f
    for f in (
        KvFormat("fp32", FP32),
        KvFormat("bf16", BF16),
        KvFormat("fp16", FP16),
        KvFormat("fp8", FP8, {"entry": FP8_UE8M0_64, "entry_rope": BF16}),
        KvFormat("fp8_e5m2", FP8, {"entry": FP8_UE8M0_64, "entry_rope": BF16}),
        KvFormat(
            "fp8_ds_mla", FP8,
            {"latent": FP8_SCALE_128, "rope": BF16, "entry": FP8_UE8M0_64, "entry_rope": BF16},
            refuses=_ONLY_LATENT,
        ),
        KvFormat("mxfp8", Storage("mxfp8", 8, scale_bits=8, group=32)),
        KvFormat("nvfp4", NVFP4),
        KvFormat("nvfp4_ds_mla", NVFP4, {"rope": FP8}, refuses=_ONLY_LATENT),
        KvFormat("int8", Storage("int8", 8)),
        KvFormat("int4", Storage("int4", 4)),
        _inline_scale("int8_per_token_head", 8),
        _inline_scale("fp8_per_token_head", 8),
        _inline_scale("int4_per_token_head", 4),
        _turboquant("turboquant_k8v4", 8, 0, 4),
        _turboquant("turboquant_4bit_nc", 4, 16, 4),
        _turboquant("turboquant_k3v4_nc", 3, 16, 4),
        _turboquant("turboquant_3bit_nc", 3, 16, 3),
        _ggml("q8_0", 8, 16),
        _ggml("q5_1", 5, 32),
        _ggml("q5_0", 5, 16),
        _ggml("q4_1", 4, 32),
        _ggml("q4_0", 4, 16),
        _ggml("iq4_nl", 4, 16),
    )
}  # fmt: skip

ALIASES: Mapping[str, str] = {
    "bfloat16": "bf16", "float16": "fp16", "f16": "fp16", "half": "fp16", "float32": "fp32", "f32": "fp32",
    "fp8_e4m3": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8_e5m2", "e4m3": "fp8", "e5m2": "fp8_e5m2",
}  # fmt: skip
_AVERAGE = re.compile(r"([1-9]|1[0-6])bit")


@cache
def kv_format(name: str) -> KvFormat:
    """The format of a KV dtype name, its alias, or an average width such as `6bit` (1 to 16 bits an element)."""
    name = ALIASES.get(name.lower(), name.lower())
    if name in FORMATS:
        return FORMATS[name]
    average = _AVERAGE.fullmatch(name)
    if average:
        return KvFormat(name, Storage(name, int(average[1])))
    raise UnknownName.of("kv dtype", name, [*FORMATS, *ALIASES, "6bit"])
