"""kvplan.formats.plot._axes: ticks that people name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.formats.plot import Axis
from kvplan.table import Unit

KIB, GIB = 2**10, 2**30


def texts(axis: Axis, low: float, high: float) -> list[str]:
    return [text for _, text in axis.ticks(low, high)]


@pytest.mark.parametrize(
    ("axis", "low", "high", "expected"),
    [
        (Axis("", "tokens", is_log=True), 4000, 140_000, ["4k", "8k", "16k", "32k", "64k", "128k"]),
        (Axis("", "tokens", is_log=True), 1024, 2**22, ["1k", "4k", "16k", "64k", "256k", "1M", "4M"]),
        (Axis("", "tokens"), 0, 131072, ["0", "32k", "64k", "96k", "128k"]),
        (Axis("", "bytes", is_log=True), GIB / 3, 9 * GIB, ["512 MiB", "1 GiB", "2 GiB", "4 GiB", "8 GiB"]),
        (Axis("", "bytes"), 0, 100 * GIB, ["0", "20 GiB", "40 GiB", "60 GiB", "80 GiB", "100 GiB"]),
        (Axis("", "bytes"), 0, 600 * KIB, ["0", "100 KiB", "200 KiB", "300 KiB", "400 KiB", "500 KiB", "600 KiB"]),
        (Axis("", "flops_per_s", is_log=True), 5e11, 2e15, ["1 TFLOP/s", "10 TFLOP/s", "100 TFLOP/s", "1 PFLOP/s"]),
        (Axis("", "count", is_log=True), 0.5, 20_000, ["1", "10", "100", "1,000", "10,000"]),
        (Axis("", "count", is_log=True), 15, 4000, ["20", "50", "100", "200", "500", "1,000", "2,000"]),
        (Axis("", "count"), 0, 4600, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (Axis("", "count", is_log=True), 21, 42, ["25", "30", "35", "40"]),
        (Axis("", "s"), 0, 0.05, ["0", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]),
        (Axis("", "percent"), 0, 1, ["0%", "20%", "40%", "60%", "80%", "100%"]),
    ],
)  # fmt: skip
def test_ticks_are_round_and_carry_their_unit(axis: Axis, low: float, high: float, expected: list[str]) -> None:
    assert texts(axis, low, high) == expected


@given(
    st.sampled_from(["tokens", "bytes", "count", "flops_per_s", "s", "percent"]),
    st.booleans(),
    st.floats(1e-3, 1e12),
    st.floats(1.5, 1e6),
)
def test_ticks_lie_within_the_axis_and_are_neither_none_nor_many(
    unit: Unit, is_log: bool, low: float, ratio: float
) -> None:
    places = [place for place, _ in Axis("", unit, is_log).ticks(low, low * ratio)]

    assert 2 <= len(places) <= 12
    assert all(low * (1 - 1e-9) <= place <= low * ratio * (1 + 1e-9) for place in places)
