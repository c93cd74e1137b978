"""Timed caches are distinct, and many enough to leave the last-level cache."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.decode_kernel import DecodeShape  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate.machine import Machine  # noqa: E402
from kvplan.validate.packing import LATENT_DTYPES, latent_record  # noqa: E402
from kvplan.validate.pool import CachePool, pool_tokens  # noqa: E402

RECORD = latent_record("bf16")
MACHINE = Machine(device="cpu", name="test", processors=1, cache_bytes=MIB, memory_bytes=GIB, free_bytes=GIB)
SHAPE = DecodeShape(batch=2, num_heads=16, context_tokens=100)


def test_contiguous_caches_do_not_overlap() -> None:
    caches = CachePool.filled(RECORD, 1000, "cpu").caches(SHAPE, None, 5)
    starts = [c.blocks.data_ptr() for c in caches]
    assert [b - a for a, b in pairwise(starts)] == [2 * 100 * 1152] * 4
    assert all(c.in_order and c.unpack().shape == (2, 100, 576) for c in caches)


def test_paged_caches_hold_different_blocks_of_the_whole_pool() -> None:
    caches = CachePool.filled(RECORD, 64 * 50, "cpu").caches(SHAPE, 64, 3)
    tables = [tuple(c.block_table.flatten().tolist()) for c in caches]
    assert len(set(tables)) == 3
    assert all(len(set(t)) == 4 and max(t) < 50 for t in tables)
    assert not any(c.unpack().isnan().any() for c in caches)


@pytest.mark.parametrize("kv_dtype", LATENT_DTYPES)
def test_a_pool_has_no_unreadable_slot(kv_dtype: str) -> None:
    pool = CachePool.filled(latent_record(kv_dtype), 40000, "cpu")
    assert pool.slots.shape == (40000, latent_record(kv_dtype).planned_bytes)
    assert not pool.record.unpack(pool.slots).isnan().any()


def test_rotation_exceeds_twice_the_cache_where_the_pool_allows_it() -> None:
    pool = CachePool.filled(RECORD, 5000, "cpu")
    assert pool.distinct(SHAPE, MACHINE) * 200 * 1152 > 2 * MIB
    assert pool.distinct(SHAPE, replace(MACHINE, cache_bytes=GIB)) == 5000 // 200


def test_a_pool_holds_the_largest_shape_within_a_quarter_of_what_is_free() -> None:
    assert pool_tokens([SHAPE], RECORD, MACHINE) == -(-2 * MIB // 1152)
    large = replace(SHAPE, context_tokens=100_000)
    assert pool_tokens([SHAPE, large], RECORD, MACHINE) == 200_000
    assert pool_tokens([large], RECORD, replace(MACHINE, free_bytes=4 * MIB)) == MIB // 1152
