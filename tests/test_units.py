"""kvplan.units: sizes keep their unit, lengths are tokens, and what is written can be read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import units
from kvplan.errors import BadInput

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("80GB", 80 * 10**9), ("80GiB", 80 * GIB), ("80 gib", 80 * GIB), ("1024B", 1024), ("1.5 TiB", 3 * 2**39),
        ("1,024 KiB", 2**20), ("1_000kB", 10**6), (70272, 70272), (" 1MiB ", 2**20), ("0B", 0),
    ],
)  # fmt: skip
def test_a_size_is_read_with_its_unit(text: str | int, size_bytes: int) -> None:
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["80", "80G", "GiB", "", "-1GiB", "1e3GB", "80 GiB x", "12,34GiB", "nan GiB"])
def test_a_size_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--kv-pool: .* is not a size; write it with a unit, such as 80GiB"):
        units.parse_bytes(text, where="--kv-pool")


@pytest.mark.parametrize(
    ("text", "tokens"), [("4k", 4096), ("128K", 131072), ("1M", 2**20), ("131072", 131072), ("1.5k", 1536), (7, 7)]
)
def test_a_length_counts_tokens_in_powers_of_two(text: str | int, tokens: int) -> None:
    assert units.parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["4kb", "k", "", "-4k", "4 tokens", "1G"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^context: .* is not a token count; write 4096, 4k, 128k or 1M"):
        units.parse_tokens(text)


def test_a_fraction_of_a_token_is_refused() -> None:
    with pytest.raises(BadInput, match=r"'1\.0001k' is not a whole number of tokens"):
        units.parse_tokens("1.0001k")


@pytest.mark.parametrize(("parse", "text"), [(units.parse_bytes, "9999999TiB"), (units.parse_tokens, "0")])
def test_what_no_machine_has_is_refused(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(BadInput, match="is outside"):
        parse(text)


@given(st.integers(0, 2**62))
def test_a_written_size_is_read_back_to_its_two_decimals(size_bytes: int) -> None:
    assert units.parse_bytes(units.format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.005)


@given(st.integers(0, 2**62))
def test_an_exact_size_is_read_back_exactly(size_bytes: int) -> None:
    assert units.parse_bytes(units.format_exact_bytes(size_bytes).replace(" ", "")) == size_bytes


@given(st.integers(1, 2**40))
def test_a_written_length_is_read_back_exactly(tokens: int) -> None:
    assert units.parse_tokens(units.format_tokens(tokens)) == tokens


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (70272, "68.62 KiB"), (2 * GIB, "2.00 GiB"),
        (-GIB, "-1.00 GiB"), (2**50, "1,024.00 TiB"),
    ],
)  # fmt: skip
def test_sizes_for_people_are_powers_of_1024(size_bytes: int, text: str) -> None:
    assert units.format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (3.66e-5, "36.6 µs"), (0.01934, "19.3 ms"), (0.9996, "1,000 ms"), (1.5, "1.50 s"),
        (12345.6, "12,346 s"), (2e-9, "2.00 ns"), (5e-11, "0.0500 ns"),
    ],
)  # fmt: skip
def test_times_have_three_digits_and_no_exponent(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.8e12, "B/s", "4.80 TB/s"), (864e9, "B/s", "864 GB/s"), (999.6e9, "B/s", "1,000 GB/s"), (0, "B/s", "0 B/s"),
        (1.979e15, "FLOP/s", "1.98 PFLOP/s"), (12, "FLOP", "12.0 FLOP"), (0.5, "B/s", "0.500 B/s"),
    ],
)  # fmt: skip
def test_rates_take_decimal_prefixes(value: float, unit: str, text: str) -> None:
    assert units.format_rate(value, unit) == text


@given(st.floats(1e-12, 1e18))
def test_three_digits_are_within_half_a_percent(value: float) -> None:
    text = units.format_significant(value)

    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.005)


@given(st.lists(st.integers(1, 2**50), min_size=1))
def test_a_shared_unit_shows_the_smallest_and_the_largest(values: list[int]) -> None:
    step = units.BYTES.common_step([*values, 0])

    if step is not None:
        assert min(values) / step[0] >= 0.01
        assert max(values) / step[0] < 10_000


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([], "GiB"), ([0, 0], "GiB"), ([GIB // 100 + 1, 9999 * GIB], "GiB"), ([70272, 327680], "KiB"), ([512], "B"),
        ([70272, 40 * GIB], None), ([-3 * GIB], "GiB"), ([20_000 * GIB], "TiB"),
    ],
)  # fmt: skip
def test_the_preferred_unit_wins_where_it_reads_well(values: list[int], name: str | None) -> None:
    step = units.BYTES.common_step(values)

    assert (step and step[1]) == name
