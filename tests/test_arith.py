"""kvplan.arith: whole numbers, the same for one value and for an array."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.arith import cdiv, maximum, minimum, round_up

SIZES = st.integers(0, 2**62)
STEPS = st.integers(1, 2**31)


@given(SIZES, STEPS)
def test_cdiv_rounds_up_exactly_where_floats_would_not(a: int, b: int) -> None:
    assert cdiv(a, b) == ceil(Fraction(a, b))


@given(SIZES, STEPS)
def test_round_up_is_the_least_multiple_that_is_not_below(a: int, multiple: int) -> None:
    rounded = round_up(a, multiple)

    assert rounded % multiple == 0
    assert a <= rounded < a + multiple


@given(SIZES, SIZES)
def test_minimum_and_maximum_share_out_their_two_values(a: int, b: int) -> None:
    assert (minimum(a, b), maximum(a, b)) == (min(a, b), max(a, b))


@pytest.mark.parametrize("function", [cdiv, round_up, minimum, maximum])
@given(values=st.lists(st.integers(0, 2**40), min_size=1, max_size=8), other=STEPS)
def test_an_array_gives_what_its_items_give(function: Callable[[Any, Any], Any], values: list[int], other: int) -> None:
    together = function(np.array(values, dtype=np.int64), other)

    assert together.dtype == np.int64
    assert together.tolist() == [function(value, other) for value in values]


@pytest.mark.parametrize("function", [minimum, maximum])
def test_two_arrays_are_compared_item_by_item(function: Callable[[Any, Any], Any]) -> None:
    a, b = np.array([1, 5]), np.array([3, 2])

    assert function(a, b).tolist() == [function(1, 3), function(5, 2)]
    assert function(4, b).tolist() == [function(4, 3), function(4, 2)]


@pytest.mark.parametrize("function", [cdiv, round_up, minimum, maximum])
def test_ints_stay_ints(function: Callable[[Any, Any], Any]) -> None:
    assert type(function(7, 2)) is int


def test_numbers_do_not_load_numpy() -> None:
    code = (
        "import sys, kvplan.arith as a; a.cdiv(7, 2), a.minimum(1, 2), a.maximum(1, 2); print('numpy' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout == "False\n"
