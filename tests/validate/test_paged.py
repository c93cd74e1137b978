"""Paged caches grow, read back what was written, and say how much they hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import BadInput  # noqa: E402
from kvplan.validate.packing import latent_record  # noqa: E402
from kvplan.validate.paged import Extent, PagedCache  # noqa: E402

RECORD = latent_record("bf16")


def values(batch: int, tokens: int) -> torch.Tensor:
    return torch.randn(batch, tokens, 576).to(torch.bfloat16)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    block_size=st.sampled_from([None, 1, 16, 64]),
    seed=st.integers(0, 99),
)
def test_what_is_appended_comes_back_in_order(steps: list[int], block_size: int | None, seed: int) -> None:
    cache = PagedCache.allocate(RECORD, Extent(2, sum(steps), block_size), seed=seed)
    written = values(2, sum(steps))
    for part in torch.split(written, steps, 1):
        cache.append(part)
    assert torch.equal(cache.unpack(), written)


def test_sessions_of_unequal_length_are_nan_beyond_their_end() -> None:
    cache = PagedCache.allocate(RECORD, Extent(3, 100, 16))
    written, lengths = values(3, 70), torch.tensor([70, 1, 33], dtype=torch.int32)
    cache.append_packed(RECORD.pack(written), lengths)
    back = cache.unpack()
    for row, tokens in enumerate(lengths.tolist()):
        assert torch.equal(back[row, :tokens], written[row, :tokens])
        assert back[row, tokens:].isnan().all()


@given(tokens=st.integers(1, 200), batch=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_bytes_in_use_are_whole_blocks(tokens: int, batch: int) -> None:
    cache = PagedCache.allocate(RECORD, Extent(batch, 200, 64))
    cache.append(values(batch, tokens))
    assert cache.used_bytes == batch * -(-tokens // 64) * 64 * 1152


def test_blocks_are_handed_out_shuffled_and_never_twice() -> None:
    cache = PagedCache.allocate(RECORD, Extent(2, 640, 64))
    cache.append(values(2, 640))
    handed = cache.block_table.flatten().tolist()
    assert sorted(handed) == list(range(20))
    assert handed != sorted(handed)


def test_only_a_contiguous_cache_lies_in_order() -> None:
    assert PagedCache.allocate(RECORD, Extent(3, 64)).in_order
    assert not PagedCache.allocate(RECORD, Extent(3, 128, 64)).in_order


def test_more_tokens_than_the_capacity_are_refused() -> None:
    cache = PagedCache.allocate(RECORD, Extent(1, 64, 64))
    with pytest.raises(BadInput, match="session 0: 65 tokens"):
        cache.append(values(1, 65))
