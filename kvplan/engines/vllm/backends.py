"""Attention backends: which one vLLM picks for a layer, and the kernel blocks that it takes.

Priorities and conditions: `platforms/cuda.py` and `v1/attention/backends/*` of 0.33; those of 0.18 on give the same
block sizes. Optional packages are taken as installed where a default image has them (FlashInfer, FlashMLA, DeepGEMM).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import lcm
from typing import Literal

from kvplan.engines.vllm.formats import FP8_DS_MLA, FP8_E4M3, KvDtype
from kvplan.errors import UnknownName, Unsupported

DEFAULT_BLOCK_SIZE = 16
_ANY = frozenset(range(100))
_TURBO = frozenset({"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"})
_PER_HEAD = frozenset({"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"})
_NVFP4 = frozenset({"nvfp4", "nvfp4_4over6"})


@dataclass(frozen=True, slots=True)
class Need:
    """What a layer asks of a backend. `capability` None: a GPU without one, served by the Triton kernels."""

    release: tuple[int, int]
    kv_dtype: str
    capability: tuple[int, int] | None
    head_size: int
    latent: bool = False
    sparse: bool = False
    sinks: bool = False
    window: bool = False
    heads: int = 0
    grouped: bool = False
    nope_head_dim: int = 0
    dcp: int = 1

    @property
    def major(self) -> int:
        """Compute capability, major part; 0 for none."""
        return self.capability[0] if self.capability else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One backend. `blocks`: kernel block sizes; with `multiples`, every multiple of the first too. `since`: the first
    release that has it; the one before has not.

    `kv_dtypes`: quantized ones that it reads, on the compute capabilities `quantized_on`. `dense`: it reads the model's
    own dtype. `records`: which caches it keeps as `fp8_ds_mla`, whatever fp8 was asked for. `chosen`: it is picked by
    name only, never by default.
    """

    name: str
    blocks: tuple[int, ...]
    since: tuple[int, int] = (0, 6)
    multiples: bool = True
    on: frozenset[int] = _ANY
    kv_dtypes: frozenset[str] = frozenset()
    quantized_on: frozenset[int] = _ANY
    head_sizes: tuple[int, ...] = ()
    latent: bool = False
    sparse: bool = False
    dense: bool = True
    sinks_on: frozenset[int] = _ANY
    windows: bool = True
    nope_head_dims: tuple[int, ...] = ()
    dcp: bool = True
    records: Literal["none", "quantized", "all"] = "none"
    chosen: bool = False

    def takes(self, block_size: int) -> bool:
        """Whether blocks of this size can be split into its kernel blocks."""
        return any(block_size % b == 0 for b in self.blocks)

    def stores(self, kv: KvDtype) -> KvDtype:
        """The KV dtype that it makes of the one asked for."""
        if kv.name == "nvfp4_ds_mla" or self.records == "none":
            return kv
        return FP8_DS_MLA if self.records == "all" or kv.quantized else kv

    def refuses(self, need: Need, block_size: int | None) -> str | None:
        """Why it cannot serve a layer, in vLLM's words; None where it can."""
        if need.release < self.since:
            return f"new in {self.since[0]}.{self.since[1]}"
        if need.latent != self.latent:
            return "MLA not supported" if need.latent else "non-MLA not supported"
        if need.sparse != self.sparse:
            return "sparse not supported" if need.sparse else "non-sparse not supported"
        if need.major not in self.on:
            return "compute capability not supported"
        if self.head_sizes and need.head_size not in self.head_sizes:
            return "head_size not supported"
        if not self._reads(need):
            return "kv_cache_dtype not supported"
        if need.sinks and need.major not in self.sinks_on:
            return "attention sinks not supported"
        if need.window and not self.windows:
            return "sliding window not supported"
        if self.nope_head_dims and need.nope_head_dim not in self.nope_head_dims:
            return f"kernel requires qk_nope_head_dim in {list(self.nope_head_dims)}, but got {need.nope_head_dim}"
        if need.dcp > 1 and not self.dcp:
            return "DCP not supported"
        return "block_size not supported" if block_size is not None and not self.takes(block_size) else None

    def _reads(self, need: Need) -> bool:
        if need.kv_dtype == "auto":
            return self.dense
        return need.kv_dtype in self.kv_dtypes and need.major in self.quantized_on


_HOPPER, _BLACKWELL, _AMPERE_ON = frozenset({9}), frozenset({10}), frozenset(range(8, 13))
_LATENT_SIZES = (320, 512, 576)
_BACKENDS = (
    Backend(name="FLASH_ATTN", blocks=(16,), on=frozenset(range(8, 100)), kv_dtypes=FP8_E4M3,
            quantized_on=_HOPPER | _BLACKWELL, head_sizes=tuple(range(8, 257, 8)), sinks_on=frozenset(range(9, 100))),
    Backend(name="FLASHINFER", blocks=(16, 32, 64), multiples=False, on=_AMPERE_ON,
            kv_dtypes=FP8_E4M3 | {"fp8_e5m2"} | _NVFP4, head_sizes=(64, 128, 256, 512),
            sinks_on=frozenset({9, 10, 12})),
    Backend(name="TRITON_ATTN", blocks=(16,), kv_dtypes=FP8_E4M3 | {"fp8_e5m2"} | _PER_HEAD),
    Backend(name="FLEX_ATTENTION", blocks=(16,), sinks_on=frozenset()),
    Backend(name="TURBOQUANT", since=(0, 20), blocks=(16, 32, 64, 128), multiples=False, kv_dtypes=_TURBO, dense=False,
            sinks_on=frozenset(), windows=False),
    Backend(name="FLASH_ATTN_DIFFKV", since=(0, 14), blocks=(16,), kv_dtypes=FP8_E4M3, chosen=True),
    Backend(name="FLASH_ATTN_MLA", since=(0, 10), blocks=(16,), on=_HOPPER, head_sizes=_LATENT_SIZES, latent=True),
    Backend(name="FLASHMLA", blocks=(64,), multiples=False, on=_HOPPER, kv_dtypes=FP8_E4M3, head_sizes=_LATENT_SIZES,
            latent=True),
    Backend(name="FLASHINFER_MLA", since=(0, 10), blocks=(32, 64), multiples=False, on=_BLACKWELL, kv_dtypes=FP8_E4M3,
            head_sizes=_LATENT_SIZES, latent=True, nope_head_dims=(64, 128, 192)),
    Backend(name="TOKENSPEED_MLA", since=(0, 21), blocks=(32, 64), multiples=False, on=_BLACKWELL, kv_dtypes=FP8_E4M3,
            dense=False, head_sizes=_LATENT_SIZES, latent=True, chosen=True),
    Backend(name="CUTLASS_MLA", since=(0, 9), blocks=(128,), multiples=False, on=_BLACKWELL, kv_dtypes=FP8_E4M3,
            head_sizes=_LATENT_SIZES, latent=True),
    Backend(name="TRITON_MLA", blocks=(16,), kv_dtypes=FP8_E4M3, latent=True),
    Backend(name="FLASH_ATTN_MLA_SPARSE", since=(0, 25), blocks=(64,), on=_HOPPER, latent=True, sparse=True, dcp=False),
    Backend(name="FLASHMLA_SPARSE", since=(0, 11), blocks=(64,), on=_HOPPER | _BLACKWELL,
            kv_dtypes=frozenset({"fp8", "fp8_ds_mla", "nvfp4_ds_mla"}), head_sizes=(576, 512), latent=True, sparse=True,
            records="quantized"),
    Backend(name="FLASHINFER_MLA_SPARSE", since=(0, 17), blocks=(32,), on=_BLACKWELL, kv_dtypes=FP8_E4M3,
            head_sizes=(576, 512), latent=True, sparse=True, nope_head_dims=(128, 192)),
    Backend(name="FLASHINFER_MLA_SPARSE_SM120", since=(0, 24), blocks=(64,), on=frozenset({12}),
            kv_dtypes=FP8_E4M3 | {"fp8_ds_mla"}, head_sizes=(576, 512), latent=True, sparse=True, records="all"),
    Backend(name="FLASHINFER_MLA_SPARSE_SM90", since=(0, 30), blocks=(64,), on=_HOPPER, kv_dtypes=FP8_E4M3,
            head_sizes=(576, 512), latent=True, sparse=True),
)  # fmt: skip
BY_NAME = {b.name: b for b in _BACKENDS}
INDEXER = Backend(name="DEEPSEEK_V32_INDEXER", blocks=(64,), multiples=False)
COMPRESSED = Backend(name="FLASHMLA_SPARSE_DSV4", blocks=(256,), multiples=False, records="all")
"""DeepSeek-V4's own; on desktop Blackwell FlashInfer's kernels read the same records."""
_PLAIN = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")
_LATENT = ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", "FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE",
           "FLASHINFER_MLA_SPARSE_SM90")  # fmt: skip


def _priorities(need: Need) -> Sequence[str]:
    """Backends in the order in which vLLM tries them on this GPU."""
    if not need.latent:
        return ("FLASHINFER", "FLASH_ATTN", *_PLAIN[2:]) if need.major == 10 else _PLAIN
    if need.major == 12:
        return ("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120")
    if need.major != 10:
        return _LATENT
    # Above 16 heads FlashMLA wastes no padding and is preferred for unquantized caches.
    flashinfer_first = need.kv_dtype != "auto" or need.heads <= 16
    sparse = ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE")
    dense = ("FLASHINFER_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA")
    return (*dense, *(sparse if flashinfer_first else reversed(sparse)))


@lru_cache(maxsize=1024)
def choose(need: Need, asked: str | None, block_size: int | None) -> Backend:
    """The backend of a layer: the one asked for if it can serve it, else the first in order that can."""
    if asked is not None:
        return _asked(need, asked, block_size)
    reasons = []
    for name in _priorities(need):
        reason = BY_NAME[name].refuses(need, block_size)
        if reason is None:
            _check_native_fp8(BY_NAME[name], need)
            return _for_this(BY_NAME[name], need, block_size)
        reasons.append(f"{name}: [{reason}]")
    raise Unsupported(
        f"No valid attention backend found for compute capability {need.capability}, kv dtype {need.kv_dtype!r}, "
        f"head size {need.head_size}: {', '.join(reasons)}"
    )


def different_values(kv: KvDtype, major: int) -> Backend:
    """The one backend of heads whose V is narrower than K; it reads fp8 on Hopper."""
    if kv.quantized and not (kv.name in FP8_E4M3 and major == 9):
        raise Unsupported("FlashAttention does not support fp8 kv-cache on this device.")
    return BY_NAME["FLASH_ATTN_DIFFKV"]


def check_layouts(used: Iterable[Backend], major: int) -> None:
    """One arrangement of heads and tokens serves the whole pool: FlashInfer's on SM100 is not TurboQuant's."""
    names = {b.name for b in used}
    if major == 10 and {"FLASHINFER", "TURBOQUANT"} <= names:
        raise Unsupported("No KV cache layout satisfies every supported set: [['LBHNC', 'BLHNC'], ['LBNHC']].")


@lru_cache(maxsize=256)
def compressed_backend(asked: str | None, kv: KvDtype, major: int, block_size: int | None) -> Backend:
    """DeepSeek-V4's backend, which keeps `fp8_ds_mla` records in blocks of 256; what else it could be is refused."""
    if asked in {"FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120"}:
        raise Unsupported(
            f"{asked} is not a DeepSeek V4 attention backend. Use FLASHINFER_MLA_SPARSE_DSV4 for DeepSeek V4 FlashInfer"
            " sparse MLA."
        )
    if asked == "FLASHINFER_MLA_SPARSE_DSV4" and major == 10:
        raise Unsupported("vLLM: DeepSeek-V4 in the plain rows of FLASHINFER_MLA_SPARSE_DSV4 is not modelled")
    if kv.quantized and not kv.name.startswith("fp8"):
        raise Unsupported(f"DeepseekV4 fp8_ds_mla layout only supports fp8 kv-cache, got {kv.name}.")
    if block_size not in {None, *COMPRESSED.blocks}:
        raise Unsupported(f"vLLM: DeepSeek-V4 in blocks of {block_size} is not modelled; its kernels take 256")
    return COMPRESSED


def _asked(need: Need, asked: str, block_size: int | None) -> Backend:
    if asked not in BY_NAME:
        raise UnknownName.of("attention backend", asked, BY_NAME)
    reason = BY_NAME[asked].refuses(need, block_size)
    if reason is not None:
        raise Unsupported(f"Selected backend {asked} is not valid for this configuration. Reason: [{reason!r}]")
    _check_native_fp8(BY_NAME[asked], need)
    return _for_this(BY_NAME[asked], need, block_size)


def _check_native_fp8(backend: Backend, need: Need) -> None:
    """Triton's kernels convert fp8 in hardware, which GPUs have since SM89; vLLM finds out after it has chosen them."""
    kind = {"TRITON_ATTN": "attention", "TRITON_MLA": "MLA"}.get(backend.name)
    if kind is None or not need.kv_dtype.startswith("fp8") or need.capability is None or need.capability >= (8, 9):
        return
    major, minor = need.capability
    raise Unsupported(
        f"FP8 KV cache is not supported by the Triton {kind} backend (compute capability {major}.{minor}); native FP8 "
        f"(fp8e4nv) requires SM89+. Re-run with --kv-cache-dtype {'bfloat16' if major >= 8 else 'float16'}."
    )


def _for_this(backend: Backend, need: Need, block_size: int | None) -> Backend:
    """The same backend with the kernel blocks of the kernel that serves this layer.

    On data-centre Blackwell FlashInfer's grouped heads also run in large pages, and FlashAttention 4 has a kernel of
    its own for heads of 256, in pages of 128.
    """
    if need.major != 10:
        return backend
    if backend.name == "FLASHINFER" and need.grouped:
        return replace(backend, blocks=(*backend.blocks, 128, 256, 512, 1024))
    plain = need.kv_dtype == "auto" and need.dcp == 1 and not need.sinks
    if backend.name == "FLASH_ATTN" and need.head_size == 256 and plain and (block_size or 128) % 128 == 0:
        return replace(backend, blocks=(128,), multiples=False)
    return backend


def preferred_block(backends: Iterable[Backend]) -> int:
    """16 where every backend takes it, else the smallest block that all take."""
    distinct = list(dict.fromkeys(backends))
    if all(b.takes(DEFAULT_BLOCK_SIZE) for b in distinct):
        return DEFAULT_BLOCK_SIZE
    for size in sorted({lcm(*sizes) for sizes in product(*(b.blocks for b in distinct))}):
        if all(b.takes(size) for b in distinct):
            return size
    names = "; ".join(f"{b.name}: {list(b.blocks)}" for b in distinct)
    raise Unsupported(f"The attention backends share no supported KV cache block size ({names}).")
