"""Tiles, splits and scratch, without a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import Unsupported
from kvplan.validate.kernels.triton_mla.configs import (
    MIN_KEYS_PER_SPLIT,
    TILES,
    DecodeShape,
    choose_tile,
    ctas_per_sm,
    plan,
    record_bytes,
    scratch_bytes,
)


@dataclass(frozen=True, slots=True)
class Device:
    """As much of a GPU as decides; figures from CUDA's programming guide, table of compute capabilities."""

    major: int
    minor: int
    multi_processor_count: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int


A100 = Device(8, 0, 108, 166_912, 167_936)
RTX_4090 = Device(8, 9, 128, 101_376, 102_400)
H200 = Device(9, 0, 132, 232_448, 233_472)
B200 = Device(10, 0, 148, 232_448, 233_472)
RTX_5090 = Device(12, 0, 170, 101_376, 102_400)
DEVICES = (A100, RTX_4090, H200, B200, RTX_5090)


def shape(**changes: object) -> DecodeShape:
    return replace(DecodeShape(batch=128, num_heads=128, max_seq_len_tokens=8192), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("heads", "query_tokens", "block_h"),
    [(8, 1, 16), (16, 1, 16), (16, 2, 32), (32, 1, 32), (40, 1, 64), (64, 1, 64), (64, 2, 64), (128, 1, 64)],
)
def test_blocks_of_rows_on_hopper(heads: int, query_tokens: int, block_h: int) -> None:
    """Heads and query tokens together fill a block."""
    assert choose_tile(shape(num_heads=heads, query_tokens=query_tokens), H200).block_h == block_h


@pytest.mark.parametrize(
    ("block_size", "block_n", "tma"),
    [(None, 64, True), (64, 64, True), (128, 64, True), (32, 32, True), (16, 32, False)],
)
def test_copies_by_descriptor_need_tiles_inside_a_block(block_size: int | None, block_n: int, tma: bool) -> None:
    tile = choose_tile(shape(block_size=block_size), H200)
    assert (tile.block_n, tile.tma) == (block_n, tma)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp16", "fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("block_size", [16, 64, None])
def test_every_device_has_a_tile_that_fits(device: Device, kv_dtype: str, heads: int, block_size: int | None) -> None:
    if kv_dtype.startswith("fp8") and device == A100:
        return
    tile = choose_tile(shape(num_heads=heads, kv_dtype=kv_dtype, block_size=block_size), device)
    assert tile.shared_bytes <= device.shared_memory_per_block_optin
    assert not tile.tma or block_size is None or block_size % tile.block_n == 0


def test_fp32_queries_take_a_tile_whose_products_are_fp32() -> None:
    assert {choose_tile(shape(query_dtype="fp32"), d) for d in DEVICES} == set(TILES["generic"]["fp32"])


def test_what_has_no_tile_is_refused_with_the_reason() -> None:
    with pytest.raises(Unsupported, match=r"compute capability 8\.9"):
        choose_tile(shape(kv_dtype="fp8"), A100)
    with pytest.raises(Unsupported, match="needs 74880 B of shared memory, the device has 65536"):
        choose_tile(shape(), replace(RTX_4090, shared_memory_per_block_optin=65536))
    with pytest.raises(Unsupported, match="reads no 'nvfp4' cache"):
        choose_tile(shape(kv_dtype="nvfp4"), H200)


def test_small_tiles_share_a_multiprocessor() -> None:
    assert ctas_per_sm(choose_tile(shape(num_heads=16), H200), H200) == 2
    assert ctas_per_sm(choose_tile(shape(), H200), H200) == 1


def test_records_are_those_of_the_core() -> None:
    assert [record_bytes(k) for k in ("bf16", "fp8", "fp8_ds_mla")] == [1152, 576, 656]


def test_scratch_holds_513_floats_for_each_row_and_split() -> None:
    assert scratch_bytes(4, 2, 16, 8) == 4 * 2 * 16 * 8 * 513 * 4
    assert scratch_bytes(4, 2, 16, 1) == 0


@pytest.mark.parametrize(
    ("batch", "heads", "tokens", "num_splits"),
    [
        (1, 16, 511, 1),  # nothing to split
        (1, 16, 8192, 16),  # 512 keys each
        (1, 128, 32768, 64),
        (128, 16, 8192, 2),  # 264 places for 128 programs
        (128, 128, 8192, 1),  # 256 programs in two waves of 132
        (100, 128, 8192, 3),  # 200 in two waves are worse than 600 in five
    ],
)
def test_splits_fill_the_last_wave(batch: int, heads: int, tokens: int, num_splits: int) -> None:
    found = plan(shape(batch=batch, num_heads=heads, max_seq_len_tokens=tokens), H200)
    assert found.num_splits == num_splits
    assert found.scratch_bytes == scratch_bytes(batch, 1, heads, num_splits)


@given(
    batch=st.integers(1, 512),
    heads=st.sampled_from([8, 16, 32, 64, 128]),
    tokens=st.integers(1, 200_000),
    query_tokens=st.integers(1, 4),
    device=st.sampled_from(DEVICES),
)
def test_splits_are_worth_it(batch: int, heads: int, tokens: int, query_tokens: int, device: Device) -> None:
    """No split below the least number of keys, none that leaves places of the device unfilled from the start."""
    step = shape(batch=batch, num_heads=heads, max_seq_len_tokens=tokens, query_tokens=query_tokens)
    found = plan(step, device)
    places = device.multi_processor_count * found.ctas_per_sm
    assert found.row_blocks * found.tile.block_h >= step.rows
    assert 1 <= found.num_splits <= max(1, min(tokens // MIN_KEYS_PER_SPLIT, places))
