"""A budget's lines, its range, and what people measured in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.budget import MEASURABLE, Budget, Line, given_pool, with_given
from kvplan.errors import UnknownName

sizes = st.integers(min_value=0, max_value=2**40)
bands = st.floats(min_value=0, max_value=2**38)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """Any budget with estimated lines, some beside it."""
    labels = draw(st.lists(st.sampled_from((*MEASURABLE, "slack")), unique=True))
    lines = [Line.estimate(x, draw(sizes), "a rule", below=draw(bands), above=draw(bands)) for x in labels]
    cut = draw(st.integers(min_value=0, max_value=len(lines)))
    return Budget(2**40, draw(sizes), tuple(lines[:cut]), "a request", beside=tuple(lines[cut:]))


@given(budgets())
def test_the_pool_is_what_remains_and_never_negative(budget: Budget) -> None:
    """Request minus lines; lines beside it cost nothing."""
    rest = budget.requested_bytes - sum(line.bytes for line in budget.lines)
    assert budget.remainder_bytes == rest
    assert budget.kv_pool_bytes == max(0, rest)


@given(budgets())
def test_ranges_contain_their_centre(budget: Budget) -> None:
    """Of every line, and of the pool."""
    assert all(0 <= line.low_bytes <= line.bytes <= line.high_bytes for line in (*budget.lines, *budget.beside))
    low, high = budget.kv_pool_range
    assert 0 <= low <= budget.kv_pool_bytes <= high


@given(budgets(), st.dictionaries(st.sampled_from(MEASURABLE), sizes))
def test_measured_lines_stand_where_the_estimate_stood(budget: Budget, measured: dict[str, int]) -> None:
    """Without a range; the order of lines stays, and what the engine leaves out of its budget stays out."""
    found = with_given(budget, measured)
    assert [line.label for line in found.lines] == [line.label for line in budget.lines]
    for line in (*found.lines, *found.beside):
        if line.label in measured:
            assert (line.bytes, line.low_bytes, line.high_bytes, line.origin) == (*[measured[line.label]] * 3, "given")
    assert {line.label for line in (*found.lines, *found.beside)} >= set(measured)


@given(budgets(), st.sampled_from(MEASURABLE), sizes, sizes)
def test_a_larger_measured_line_never_leaves_more(budget: Budget, label: str, one: int, other: int) -> None:
    """The pool falls, or stays where the line stands beside the budget."""
    small, large = sorted((one, other))
    assert with_given(budget, {label: large}).kv_pool_bytes <= with_given(budget, {label: small}).kv_pool_bytes


def test_a_line_that_nobody_knows_is_an_error() -> None:
    """It names the near match."""
    budget = Budget(100, 90, (Line.exact("weights", 10, "all"),), "all")
    with pytest.raises(UnknownName, match="did you mean weights"):
        with_given(budget, {"weigths": 1})


def test_a_given_pool_has_no_range() -> None:
    """It is what the user states."""
    assert given_pool(7, 100).kv_pool_range == (7, 7)


def test_errors_add_as_independent_ones_do() -> None:
    """Root of squares, each side on its own."""
    lines = tuple(Line.estimate(x, 100, "a rule", below=30, above=40) for x in ("weights", "activation"))
    low, high = Budget(1000, 1000, lines, "all").kv_pool_range
    assert (low, high) == (int(800 - 40 * 2**0.5), int(800 + 30 * 2**0.5))
