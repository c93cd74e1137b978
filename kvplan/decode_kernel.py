"""How long one attention-decode kernel takes: a roofline with the causes that measurements show.

    t = max(floor, t0 + max(reading, arithmetic) + turns x item + queries and outputs + partials + splits + cold start)

Arithmetic is that of the busiest multiprocessor: rows padded to whole tiles, work items to whole turns. Reading comes
from the L2 where the cache fits into it. `docs/explanation-decode-time.md` gives the source of each term and what it
bought; `kvplan.validate.calibrate` fits a `Calibration` to a few timings. Pure Python, one layer, one step, one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from kvplan.arith import cdiv
from kvplan.errors import BadInput

Schedule = Literal["ideal", "persistent", "waves"]
"""How work items meet multiprocessors. waves: in whole turns, the last one part empty. persistent: a fixed grid shares
all key tiles evenly (FlashMLA). ideal: evenly and unsplit, as on a CPU or on a device whose parts are unknown."""

TILE_TOKENS = 64
"""Keys that one step of a kernel's inner loop takes: no split is shorter (FlashMLA and FlashAttention-3 use 64)."""
_QUERY_BYTES = 2
"""Queries and outputs are bf16 whatever the cache is."""
_PARTIAL_BYTES = 2 * 4
"""Split outputs and their log-sum-exp are float32, written once and read once by the reduction."""
_L2_SHARE = 0.9
"""Of the L2, what a cache that is read again may fill: queries, partials and hashing take the rest."""
_L2_EDGE = 8
"""How sharply hits end there (exponent)."""


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """One latent-attention layer in one decode step on one rank, absorbed: every head scores the same latent.

    `num_heads` are the rank's query heads, `query_tokens` the new tokens of a session, `kv_bytes_per_token` what one
    cached token takes: 1152 in bf16, 656 in fp8 with scales and bf16 rope, 576 in plain fp8.
    """

    batch: int
    num_heads: int
    context_tokens: int
    query_tokens: int = 1
    latent_dim: int = 512
    rope_dim: int = 64
    kv_bytes_per_token: int = 1152

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < (0 if field.name == "rope_dim" else 1):
                raise BadInput(f"{field.name}: {getattr(self, field.name)} is too small for a decode step")

    @property
    def rows(self) -> int:
        """Query rows that share one session's cache."""
        return self.num_heads * self.query_tokens

    @property
    def flops_per_row_token(self) -> int:
        """One row meets one key: a score over latent and rope, an output over the latent; 2,176 in DeepSeek-V3."""
        return 2 * (2 * self.latent_dim + self.rope_dim)

    @property
    def flops(self) -> int:
        """Without padding."""
        return self.batch * self.rows * self.context_tokens * self.flops_per_row_token

    @property
    def kv_bytes(self) -> int:
        """The latent cache, read once."""
        return self.batch * self.context_tokens * self.kv_bytes_per_token

    @property
    def io_bytes(self) -> int:
        """Queries in, outputs out."""
        return self.batch * self.rows * (2 * self.latent_dim + self.rope_dim) * _QUERY_BYTES

    @property
    def bytes(self) -> int:
        """All that has to move."""
        return self.kv_bytes + self.io_bytes


@dataclass(frozen=True, slots=True)
class Device:
    """What the model needs to know of a device; None is unknown.

    `flops_per_s` is the dense peak at the dtype of the matrix unit. `overlap`: reading goes on during arithmetic, as on
    a GPU; a CPU thread does one after the other.
    """

    sm_count: int | None
    l2_bytes: int | None
    bytes_per_s: float | None
    flops_per_s: float | None
    overlap: bool = True


@dataclass(frozen=True, slots=True)
class KernelForm:
    """How a kernel cuts a step up.

    `row_tile`: query rows of one work item (64 for wgmma and its successors, 16 for mma.sync). `splits`: parts that a
    session's keys are cut into; None: as many as fill the device. `overlap`: False where a pass of its own reads or
    dequantises the cache before arithmetic begins.
    """

    row_tile: int = 64
    splits: int | None = None
    schedule: Schedule = "waves"
    overlap: bool = True


IDEAL = KernelForm(row_tile=1, splits=1, schedule="ideal")
"""A roofline: nothing is padded, split or queued."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one kernel in one KV dtype reaches on one device.

    `item_s`: start and end of a work item. `split_s`: for each part that the reduction merges. `cold_s`: start of a
    read that the L2 does not hold. `floor_s`: what launching takes, whatever is launched. `io_bytes_per_s`: queries
    and outputs; `l2_bytes_per_s`: caches and partials that rest in the L2; None: as `bytes_per_s`. `work_factors`:
    (num_heads, factor), ascending: kernels chosen by head count, interpolated between.
    """

    t0_s: float
    bytes_per_s: float
    flops_per_s: float
    form: KernelForm = IDEAL
    item_s: float = 0.0
    split_s: float = 0.0
    cold_s: float = 0.0
    floor_s: float = 0.0
    io_bytes_per_s: float | None = None
    l2_bytes_per_s: float | None = None
    work_factors: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What a form makes of a shape on a device: all that a time depends on besides the calibration.

    `flops` are those of the busiest multiprocessor times their number. `resident` is the share of the cache that the L2
    holds from the step before; `partial_bytes` and `splits` are 0 where nothing is split.
    """

    num_heads: int
    flops: float
    kv_bytes: int
    io_bytes: int
    partial_bytes: int = 0
    splits: int = 0
    turns: float = 0.0
    resident: float = 0.0


def load_of(shape: DecodeShape, form: KernelForm, device: Device) -> Load:
    """`BadInput` where the form needs the device's multiprocessors and they are unknown."""
    if form.schedule == "ideal":
        padded = cdiv(shape.rows, form.row_tile) * form.row_tile * shape.flops / shape.rows
        return Load(shape.num_heads, padded, shape.bytes, 0)
    if device.sm_count is None:
        raise BadInput(f"sm_count: is unknown, and a kernel in {form.schedule} needs it")
    items = shape.batch * cdiv(shape.rows, form.row_tile)
    tiles = cdiv(shape.context_tokens, TILE_TOKENS)
    wanted = device.sm_count // items if form.splits is None else form.splits
    splits = max(1, min(wanted, tiles))
    turns = max(1.0, items * splits / device.sm_count)
    if form.schedule == "waves":
        turns = math.ceil(turns)
        busiest_tiles: float = turns * cdiv(tiles, splits)
    else:
        busiest_tiles = max(1.0, items * tiles / device.sm_count)
    row_tokens = busiest_tiles * TILE_TOKENS * device.sm_count * form.row_tile
    return Load(
        num_heads=shape.num_heads,
        flops=row_tokens * shape.flops_per_row_token,
        kv_bytes=shape.kv_bytes,
        io_bytes=shape.io_bytes,
        partial_bytes=_partial_bytes(shape, splits) if splits > 1 else 0,
        splits=splits if splits > 1 else 0,
        turns=turns,
        resident=_resident(shape.kv_bytes, device.l2_bytes),
    )


def _partial_bytes(shape: DecodeShape, splits: int) -> int:
    """An unfinished output and its log-sum-exp for each row and split."""
    return shape.batch * shape.rows * splits * (shape.latent_dim + 1) * _PARTIAL_BYTES


def _resident(kv_bytes: int, l2_bytes: int | None) -> float:
    if not l2_bytes:
        return 0.0
    return 1 / (1 + (kv_bytes / (_L2_SHARE * l2_bytes)) ** _L2_EDGE)


def seconds(load: Load, calibration: Calibration) -> float:
    """The time of a load, one layer."""
    bytes_per_s = calibration.bytes_per_s
    l2_bytes_per_s = calibration.l2_bytes_per_s or bytes_per_s
    kernel_s = (
        calibration.t0_s
        + _work_s(load, calibration, bytes_per_s, l2_bytes_per_s) * _factor(load.num_heads, calibration.work_factors)
        + load.turns * calibration.item_s
        + load.io_bytes / (calibration.io_bytes_per_s or bytes_per_s)
        + load.partial_bytes / l2_bytes_per_s
        + load.splits * calibration.split_s
        + (1 - load.resident) * calibration.cold_s
    )
    return max(kernel_s, calibration.floor_s)


def _work_s(load: Load, calibration: Calibration, bytes_per_s: float, l2_bytes_per_s: float) -> float:
    """Reading and arithmetic. A pass of its own is bound by its instructions, so the L2 does not hasten it."""
    arithmetic_s = load.flops / calibration.flops_per_s
    if not calibration.form.overlap:
        return load.kv_bytes / bytes_per_s + arithmetic_s
    reading_s = load.kv_bytes * ((1 - load.resident) / bytes_per_s + load.resident / l2_bytes_per_s)
    return max(reading_s, arithmetic_s)


def _factor(num_heads: int, work_factors: tuple[tuple[int, float], ...]) -> float:
    """Of this head count; between two known ones along a straight line in logarithms, outside as the nearest."""
    below = [known for known in work_factors if known[0] <= num_heads]
    above = [known for known in work_factors if known[0] >= num_heads]
    if not (below and above):
        return (below[-1:] or above[:1] or [(num_heads, 1.0)])[0][1]
    (low_heads, low), (high_heads, high) = below[-1], above[0]
    if low_heads == high_heads:
        return low
    return float(low * (high / low) ** (math.log(num_heads / low_heads) / math.log(high_heads / low_heads)))


def predict_s(shape: DecodeShape, calibration: Calibration, device: Device) -> float:
    """Seconds of one launch."""
    return seconds(load_of(shape, calibration.form, device), calibration)


def datasheet(device: Device) -> Calibration:
    """The plain roofline at the maker's peaks: max(bytes / bandwidth, FLOPs / rate), or their sum without overlap."""
    if device.bytes_per_s is None or device.flops_per_s is None:
        raise BadInput("device: its peak bandwidth or arithmetic rate is unknown, so it has no datasheet roofline")
    form = KernelForm(row_tile=1, splits=1, schedule="ideal", overlap=device.overlap)
    return Calibration(0.0, device.bytes_per_s, device.flops_per_s, form)
