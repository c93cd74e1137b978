"""Which tile a decode launch uses, and into how many splits it cuts the context.

A program holds one block of query rows (query tokens x heads) against tiles of cache entries. Every block of rows reads
the latent once more, so the fewest blocks win, then the fewest padded rows. The tiles were chosen by what they compile
to (`compile.py`, Triton 3.7.1): those of sm_80, sm_89 and sm_90 spill nothing, those of sm_100 at most 300 B.

- Hopper, more than 32 rows: 64 x 64, two buffers filled by descriptor (one block of 64 entries = one copy), wgmma.
  Below, mma.sync keeps up: 16 rows do 30 FLOP a byte, a seventh of what an H200 could do in the time of reading.
- Datacentre Blackwell: 64 x 32 with tcgen05; 64 x 64 does not fit, 128 rows neither, and four warps spill 0.8 KB.
- fp8 is dequantised on its way from the copy to the tile of the products, so the copy is not by descriptor.
- Everything else has mma.sync, and 99 KiB (8.6, 8.9, 12.x) to 163 KiB (8.0) of shared memory.

To be checked on a GPU: that two programs a multiprocessor hide the copies of the small tiles; whether 64 padded rows
beat 16 and 32 on Hopper; 4 shorter stages (64 x 32) against 2 long ones (64 x 64), whose next copy starts only with the
second product; fp8 at 64 rows against 16; and MIN_KEYS_PER_SPLIT at batch 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from kvplan.arith import cdiv, round_up
from kvplan.errors import Unsupported
from kvplan.storage import kv_format

LATENT_DIM, ROPE_DIM = 512, 64
MIN_KEYS_PER_SPLIT = 512
"""A split of fewer keys is shorter than its own start, end and merge."""
FP32_BYTES = 4
_CTA_RESERVED_BYTES = 1024
"""Shared memory that CUDA keeps for itself in every thread block (CUDA programming guide, compute capability 8+)."""
_REGISTERS_PER_SM = 65536
_WARP_THREADS = 32

Family = Literal["hopper", "blackwell", "generic"]
KV_DTYPES = ("fp32", "bf16", "fp16", "fp8", "fp8_ds_mla")


@dataclass(frozen=True, slots=True)
class Tile:
    """A configuration: rows and entries of a tile, warps, pipeline stages, copies by descriptor or by pointer.

    `shared_bytes` and `registers` (a thread) are what it compiles to, at most.
    """

    block_h: int
    block_n: int
    num_warps: int
    num_stages: int
    shared_bytes: int
    registers: int = 255
    tma: bool = False

    def suits(self, block_size: int | None) -> bool:
        """Whether a tile that is copied by descriptor lies inside one block of the cache; None is contiguous."""
        return not self.tma or block_size is None or block_size % self.block_n == 0


_SMALL = Tile(16, 32, 4, 3, 93_184, 192)
_SMALL_FP8 = Tile(16, 32, 4, 3, 55_296)
_SMALL_SCALED = Tile(16, 32, 4, 3, 93_184)
_FP32 = (Tile(16, 16, 8, 2, 74_816, 128),)
TILES: Mapping[Family, Mapping[str, tuple[Tile, ...]]] = {
    "hopper": {
        "16-bit": (
            Tile(64, 64, 8, 2, 229_392, tma=True),
            Tile(64, 32, 8, 4, 225_312, tma=True),
            Tile(64, 32, 8, 4, 225_280),
            Tile(32, 32, 4, 3, 112_768),
            _SMALL,
        ),
        "fp8": (Tile(64, 64, 8, 3, 221_184), _SMALL_FP8),
        "fp8_ds_mla": (Tile(64, 32, 8, 3, 156_672), _SMALL_SCALED),
        "fp32": _FP32,
    },
    "blackwell": {
        "16-bit": (Tile(64, 32, 8, 3, 217_648), _SMALL),
        "fp8": (Tile(64, 32, 8, 3, 147_488), _SMALL_FP8),
        "fp8_ds_mla": (Tile(64, 32, 8, 3, 153_120), _SMALL_SCALED),
        "fp32": _FP32,
    },
    "generic": {
        "16-bit": (Tile(64, 32, 8, 3, 151_808), Tile(32, 16, 4, 3, 74_880), _SMALL),
        "fp8": (_SMALL_FP8,),
        "fp8_ds_mla": (_SMALL_SCALED,),
        "fp32": _FP32,
    },
}
"""Tiles by architecture and cache, the best first among equals."""


class DeviceProperties(Protocol):
    """What `torch.cuda.get_device_properties` tells, as far as it is needed here."""

    @property
    def major(self) -> int:
        """Compute capability before the point."""
        ...

    @property
    def minor(self) -> int:
        """Compute capability behind it."""
        ...

    @property
    def multi_processor_count(self) -> int:
        """Streaming multiprocessors."""
        ...

    @property
    def shared_memory_per_block_optin(self) -> int:
        """Bytes that one thread block can have."""
        ...

    @property
    def shared_memory_per_multiprocessor(self) -> int:
        """Bytes that the thread blocks of one multiprocessor share."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeShape:
    """One decode step of one layer on one rank. `block_size` None is a contiguous cache.

    `max_seq_len_tokens` is the longest session, or an upper bound such as the room of the cache.
    """

    batch: int
    num_heads: int
    max_seq_len_tokens: int
    query_tokens: int = 1
    kv_dtype: str = "bf16"
    query_dtype: str = "bf16"
    block_size: int | None = 64

    @property
    def rows(self) -> int:
        """Rows of the score matrix of one session."""
        return self.query_tokens * self.num_heads


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How a shape runs: the tile, blocks of rows and splits a session, what one multiprocessor holds, and scratch."""

    tile: Tile
    row_blocks: int
    num_splits: int
    ctas_per_sm: int
    scratch_bytes: int


def canonical_kv_dtype(name: str) -> str:
    """The KV dtype's own name, such as `fp8` for `fp8_e4m3`; `Unsupported` for one that the kernel cannot read."""
    found = kv_format(name).name
    if found not in KV_DTYPES:
        raise Unsupported(f"the Triton MLA kernel reads no {name!r} cache; it reads {', '.join(KV_DTYPES)}")
    return found


def record_bytes(kv_dtype: str) -> int:
    """Bytes of one token's entry in one layer: 1,152 in bf16, 576 in fp8, 656 in fp8_ds_mla."""
    storage = kv_format(kv_dtype)
    return storage.of("latent").vector_bytes(LATENT_DIM) + storage.of("rope").vector_bytes(ROPE_DIM)


def scratch_bytes(batch: int, query_tokens: int, num_heads: int, num_splits: int) -> int:
    """Partial results: 512 values and a log-sum-exp in fp32 for each row and split; nothing if there is one split."""
    if num_splits == 1:
        return 0
    return batch * query_tokens * num_heads * num_splits * (LATENT_DIM + 1) * FP32_BYTES


def family(device: DeviceProperties) -> Family:
    """Which matrix instructions: wgmma on 9.x, tcgen05 on 10.x, mma.sync on all others."""
    return {9: "hopper", 10: "blackwell"}.get(device.major, "generic")  # type: ignore[return-value]


def ctas_per_sm(tile: Tile, device: DeviceProperties) -> int:
    """Thread blocks that one multiprocessor holds at once, by registers and by shared memory."""
    by_registers = _REGISTERS_PER_SM // (tile.num_warps * _WARP_THREADS * round_up(tile.registers, 8))
    by_memory = device.shared_memory_per_multiprocessor // (tile.shared_bytes + _CTA_RESERVED_BYTES)
    return max(1, min(by_registers, by_memory))


def _tile_kind(kv_dtype: str, query_dtype: str) -> str:
    """The cache decides, unless fp32 queries make every product fp32."""
    if query_dtype == "fp32":
        return "fp32"
    return kv_dtype if kv_dtype.startswith("fp8") else "16-bit"


def choose_tile(shape: DecodeShape, device: DeviceProperties) -> Tile:
    """The tile that reads the latent the fewest times, then the one that pads the fewest rows."""
    kv_dtype = canonical_kv_dtype(shape.kv_dtype)
    capability = (device.major, device.minor)
    if kv_dtype.startswith("fp8") and capability < (8, 9):
        raise Unsupported(f"an fp8 cache needs compute capability 8.9 (e4m3 conversion); this device has {capability}")
    tiles = TILES[family(device)][_tile_kind(kv_dtype, shape.query_dtype)]
    limit_bytes = device.shared_memory_per_block_optin
    fitting = [t for t in tiles if t.shared_bytes <= limit_bytes and t.suits(shape.block_size)]
    if not fitting:
        least_bytes = min(t.shared_bytes for t in tiles)
        raise Unsupported(f"the Triton MLA kernel needs {least_bytes} B of shared memory, the device has {limit_bytes}")
    return min(fitting, key=lambda tile: (cdiv(shape.rows, tile.block_h), tile.block_h))


def split_count(shape: DecodeShape, tile: Tile, device: DeviceProperties) -> int:
    """Splits with the least work for the busiest place of a multiprocessor, in keys.

    Each wave of programs takes one split's keys; partial results are written and read again, which costs as much as
    reading the same bytes of cache. Both are exact for a kernel that memory binds; where products bind it, a key takes
    longer, and splits are cheaper than this says.
    """
    slots = device.multi_processor_count * ctas_per_sm(tile, device)
    key_bytes = slots * record_bytes(shape.kv_dtype)
    programs = shape.batch * cdiv(shape.rows, tile.block_h)

    def keys(num_splits: int) -> float:
        waves = cdiv(programs * num_splits, slots)
        merged_bytes = 2 * scratch_bytes(shape.batch, shape.query_tokens, shape.num_heads, num_splits)
        return waves * cdiv(shape.max_seq_len_tokens, num_splits) + merged_bytes / key_bytes

    most = max(1, min(shape.max_seq_len_tokens // MIN_KEYS_PER_SPLIT, slots))
    return min(range(1, most + 1), key=keys)


def plan(shape: DecodeShape, device: DeviceProperties) -> DecodePlan:
    """Tile, splits and scratch of a shape on a device; `Unsupported` where no tile fits."""
    tile = choose_tile(shape, device)
    num_splits = split_count(shape, tile, device)
    return DecodePlan(
        tile=tile,
        row_blocks=cdiv(shape.rows, tile.block_h),
        num_splits=num_splits,
        ctas_per_sm=ctas_per_sm(tile, device),
        scratch_bytes=scratch_bytes(shape.batch, shape.query_tokens, shape.num_heads, num_splits),
    )
