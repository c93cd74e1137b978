"""The float64 attention: laws that hold whatever the values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.validate.reference import grouped_attention, latent_attention, merge_by_log_sum_exp  # noqa: E402

LATENT, WIDTH, HEADS, BATCH = 32, 40, 4, 3


def problem(tokens: int, query_tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(BATCH, query_tokens, HEADS, WIDTH, generator=generator, dtype=torch.float64)
    return query, torch.randn(BATCH, tokens, WIDTH, generator=generator, dtype=torch.float64)


def by_hand(query: torch.Tensor, entries: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """One query at a time, over exactly the entries that it sees."""
    output = torch.zeros(*query.shape[:3], LATENT, dtype=torch.float64)
    for b, length in enumerate(lengths):
        for i in range(query.shape[1]):
            seen = entries[b, : length - query.shape[1] + i + 1]
            output[b, i] = (query[b, i] @ seen.T * 0.1).softmax(-1) @ seen[:, :LATENT]
    return output


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 20), min_size=BATCH, max_size=BATCH),
    query_tokens=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_each_query_sees_its_own_past_and_nothing_of_unread_slots(
    lengths: list[int], query_tokens: int, seed: int
) -> None:
    query, entries = problem(20, query_tokens, seed)
    expected = by_hand(query, entries, lengths)
    for row, tokens in enumerate(lengths):
        entries[row, tokens:] = torch.nan
    output, _ = latent_attention(query, entries, torch.tensor(lengths), 0.1, LATENT)
    assert torch.allclose(output, expected, rtol=0, atol=1e-13)


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, 19), seed=st.integers(0, 99))
def test_parts_merged_by_log_sum_exp_equal_the_whole(cut: int, seed: int) -> None:
    query, entries = problem(20, 1, seed)
    whole, lse = latent_attention(query, entries, torch.tensor([20] * BATCH), 0.1, LATENT)
    halves = [
        latent_attention(query, part, torch.tensor([part.shape[1]] * BATCH), 0.1, LATENT)
        for part in (entries[:, :cut], entries[:, cut:])
    ]
    outputs, lses = (torch.stack(both) for both in zip(*halves, strict=True))
    merged, merged_lse = merge_by_log_sum_exp(outputs, lses)
    assert torch.allclose(merged, whole, rtol=0, atol=1e-13)
    assert torch.allclose(merged_lse, lse, rtol=0, atol=1e-13)


def test_an_empty_part_changes_nothing() -> None:
    query, entries = problem(20, 1, 0)
    whole = latent_attention(query, entries, torch.tensor([20] * BATCH), 0.1, LATENT)
    empty = latent_attention(query, entries, torch.tensor([0] * BATCH), 0.1, LATENT)
    outputs, lses = (torch.stack(both) for both in zip(whole, empty, strict=True))
    assert torch.equal(merge_by_log_sum_exp(outputs, lses)[0], whole[0])


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_their_key_and_value(kv_heads: int) -> None:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(BATCH, 1, HEADS, WIDTH, generator=generator, dtype=torch.float64)
    keys, values = torch.randn(2, BATCH, 9, kv_heads, WIDTH, generator=generator, dtype=torch.float64)
    output, _ = grouped_attention(query, keys, values, torch.tensor([9] * BATCH), 0.1)
    repeated = (t.repeat_interleave(HEADS // kv_heads, 2) for t in (keys, values))
    expected, _ = grouped_attention(query, *repeated, torch.tensor([9] * BATCH), 0.1)
    assert torch.allclose(output, expected, rtol=0, atol=1e-14)
