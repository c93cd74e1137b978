"""A reading allows exactly the values that would have been printed like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.logs.observed import Reading
from kvplan.logs.patterns import Pattern
from kvplan.units import GIB

_SIZE = Pattern(b"", "<size:gib> GiB")


def _printed(size_bytes: int, decimals: int = 2) -> Reading:
    """The reading of a size that an engine printed."""
    found = _SIZE.match(f"{size_bytes / GIB:.{decimals}f} GiB")
    assert found is not None
    return Reading("size_bytes", *_SIZE.values(found)["size_bytes"])


@given(st.integers(-(2**30), 2**42), st.sampled_from([2, 4]))
def test_the_value_that_was_printed_is_allowed(size_bytes: int, decimals: int) -> None:
    assert _printed(size_bytes, decimals).allows(size_bytes)


@given(st.integers(0, 2**42), st.integers(2, 10**6), st.sampled_from([-1, 1]))
def test_a_value_two_steps_of_the_print_away_is_not_allowed(size_bytes: int, steps: int, sign: int) -> None:
    assert not _printed(size_bytes).allows(size_bytes + sign * steps * GIB // 100)


@pytest.mark.parametrize(("value", "allowed"), [(178880, True), (178879, False), (178880.4, False)])
def test_a_count_is_exact(value: float, allowed: bool) -> None:
    assert Reading("kv_tokens", 178880).allows(value) is allowed


def test_a_word_allows_no_number() -> None:
    assert not Reading("version", "0.19.0").allows(0.19)
