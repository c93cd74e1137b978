"""The time of one attention-decode kernel: hand-computed cases, each term's cause, and laws."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.decode_kernel import Calibration, DecodeShape, Device, KernelForm, datasheet, load_of, predict_s, seconds
from kvplan.errors import BadInput

H200 = Device(sm_count=132, l2_bytes=62_914_560, bytes_per_s=4.8e12, flops_per_s=989e12)
B200 = Device(sm_count=148, l2_bytes=132_644_864, bytes_per_s=7.7e12, flops_per_s=2250e12)
H20 = Device(sm_count=78, l2_bytes=62_914_560, bytes_per_s=4e12, flops_per_s=148e12)
CPU = Device(sm_count=1, l2_bytes=1 << 21, bytes_per_s=10e9, flops_per_s=100e9, overlap=False)
PLAIN = Calibration(0.0, 4e12, 600e12, KernelForm())


def shape(batch: int, num_heads: int, context_tokens: int, query_tokens: int = 1) -> DecodeShape:
    """DeepSeek-V3's latent in bf16."""
    return DecodeShape(batch, num_heads, context_tokens, query_tokens)


def test_deepseek_v3_takes_2176_flops_per_head_and_token_and_1152_bytes_per_token() -> None:
    """FLOPs 2 x (2 x 512 + 64), bytes (512 + 64) x 2; queries and outputs (576 + 512) x 2 bytes a row."""
    one = shape(batch=128, num_heads=16, context_tokens=8192)
    assert one.flops == 2176 * 128 * 16 * 8192
    assert one.kv_bytes == 128 * 8192 * 1152
    assert one.io_bytes == 128 * 16 * 1088 * 2
    assert one.bytes == one.kv_bytes + one.io_bytes
    assert one.flops / one.bytes == pytest.approx(30.1, abs=0.05)  # FLOPs per byte at 16 heads


@pytest.mark.parametrize(
    ("field", "value"), [("batch", 0), ("num_heads", -1), ("context_tokens", 0), ("query_tokens", 0), ("rope_dim", -1)]
)
def test_an_impossible_shape_is_refused_by_the_name_of_its_field(field: str, value: int) -> None:
    """One line that names field and value."""
    with pytest.raises(BadInput, match=f"{field}: {value}"):
        dataclasses.replace(shape(1, 16, 1024), **{field: value})


@pytest.mark.parametrize(
    ("heads", "device", "expected_us"),
    [
        (16, H200, 252.59),  # (1207.96 MB + 4.46 MB) / 4.8 TB/s
        (128, H200, 295.34),  # 292.06 GFLOP / 989 TFLOP/s
    ],
)
def test_datasheet_is_the_roofline_of_the_peaks(heads: int, device: Device, expected_us: float) -> None:
    """Batch 128, 8,192 tokens: memory-bound at 16 heads, compute-bound at 128, no term added."""
    assert predict_s(shape(128, heads, 8192), datasheet(device), device) * 1e6 == pytest.approx(expected_us, abs=0.05)


def test_the_datasheet_of_a_cpu_adds_reading_and_arithmetic() -> None:
    """One thread does one after the other."""
    one = shape(1, 16, 4096)
    assert predict_s(one, datasheet(CPU), CPU) == pytest.approx(one.bytes / 10e9 + one.flops / 100e9)


def test_datasheet_refuses_unknown_peaks() -> None:
    """No roofline without roofs."""
    with pytest.raises(BadInput, match="unknown"):
        datasheet(dataclasses.replace(H200, bytes_per_s=None))


@pytest.mark.parametrize(
    ("one", "device", "turns", "splits"),
    [
        (shape(1, 16, 131072), H200, 1, 132),  # one item: cut into as many parts as there are multiprocessors
        (shape(1, 16, 1024), H200, 1, 16),  # no part is shorter than 64 keys
        (shape(64, 16, 8192), H200, 1, 2),
        (shape(64, 128, 8192), H200, 1, 0),  # 128 heads: two items a session, 128 fill the device
        (shape(128, 128, 8192), H200, 2, 0),
        (shape(1024, 16, 8192), B200, 7, 0),  # 1024 / 148 = 6.9
    ],
)
def test_work_items_fill_the_multiprocessors_in_whole_turns(
    one: DecodeShape, device: Device, turns: int, splits: int
) -> None:
    """64-row tiles, split to fill the device; 0 splits where nothing is split."""
    load = load_of(one, KernelForm(), device)
    assert (load.turns, load.splits) == (turns, splits)


def test_a_fixed_number_of_splits_leaves_a_tail() -> None:
    """38 sessions in 4 splits are 152 items, 4 more than a B200's 148: twice the time of 37."""
    fixed = KernelForm(splits=4)
    long, short = (load_of(shape(b, 64, 8192), fixed, B200).flops for b in (38, 37))
    assert long == 2 * short


def test_a_persistent_grid_has_no_tail() -> None:
    """It shares the same tiles over all multiprocessors."""
    even = load_of(shape(149, 64, 8192), KernelForm(schedule="persistent"), B200)
    tail = load_of(shape(149, 64, 8192), KernelForm(), B200)
    assert even.flops == pytest.approx(shape(149, 64, 8192).flops)
    assert tail.flops == 148 * 2 * 64 * 8192 * 2176


def test_a_row_too_many_costs_a_whole_tile() -> None:
    """H20, 16 heads, batch 128, 4,096 tokens: 0.60 ms with 4 query tokens, 1.17 ms with 5 (FlashMLA issue 30)."""
    persistent = KernelForm(schedule="persistent")
    times = [load_of(shape(128, 16, 4096, q), persistent, H20).flops for q in (1, 4, 5, 8)]
    assert times[0] == times[1] == times[2] / 2 == times[3] / 2


def test_split_outputs_are_float32_written_and_read_once() -> None:
    """Rows x splits x (512 + 1) x 4 bytes, twice."""
    assert load_of(shape(64, 16, 8192), KernelForm(), H200).partial_bytes == 64 * 16 * 2 * 513 * 4 * 2


def test_the_l2_holds_small_caches_and_not_large_ones() -> None:
    """36 MiB of the H200's 60 MiB stay, 144 MiB do not; unknown L2 holds nothing."""
    small, large = (load_of(shape(32, 16, s), KernelForm(), H200).resident for s in (1024, 4096))
    assert small > 0.95
    assert large < 0.01
    assert load_of(shape(32, 16, 1024), KernelForm(), dataclasses.replace(H200, l2_bytes=None)).resident == 0


def test_every_term_adds_what_its_name_says() -> None:
    """Batch 64, 16 heads, 4,096 tokens on an H200, all by hand."""
    calibration = Calibration(
        t0_s=1e-6, bytes_per_s=4e12, flops_per_s=500e12, form=KernelForm(), item_s=2e-6, split_s=3e-6, cold_s=4e-6,
        io_bytes_per_s=1e12, l2_bytes_per_s=5e12,
    )  # fmt: skip
    cold = 1 - 1 / (1 + (64 * 4096 * 1152 / (0.9 * 62_914_560)) ** 8)
    reading = 64 * 4096 * 1152 * (cold / 4e12 + (1 - cold) / 5e12)
    partials = 64 * 16 * 2 * 513 * 8 / 5e12
    by_hand = 1e-6 + reading + 2e-6 + 64 * 16 * 2176 / 1e12 + partials + 2 * 3e-6 + cold * 4e-6
    assert predict_s(shape(64, 16, 4096), calibration, H200) == pytest.approx(by_hand, rel=1e-12)


def test_the_slower_of_reading_and_arithmetic_counts() -> None:
    """A GPU does both at once."""
    load = dataclasses.replace(load_of(shape(128, 64, 8192), KernelForm(), H200), io_bytes=0, turns=0, resident=0.0)
    for flops_per_s in (100e12, 2000e12):
        slower_s = max(load.kv_bytes / PLAIN.bytes_per_s, load.flops / flops_per_s)
        assert seconds(load, dataclasses.replace(PLAIN, flops_per_s=flops_per_s)) == pytest.approx(slower_s)


def test_a_dequantising_pass_comes_on_top_and_the_l2_does_not_hasten_it() -> None:
    """Reading at its own rate plus arithmetic."""
    form = KernelForm(overlap=False)
    calibration = Calibration(0.0, 0.3e12, 600e12, form, l2_bytes_per_s=9e12, io_bytes_per_s=1e30)
    load = load_of(shape(256, 16, 64), form, H200)
    assert load.resident > 0.9
    assert seconds(load, calibration) == pytest.approx(load.kv_bytes / 0.3e12 + load.flops / 600e12)


def test_an_eager_launch_hides_short_kernels_and_not_long_ones() -> None:
    """The larger of the two."""
    eager = dataclasses.replace(PLAIN, floor_s=167e-6)
    assert predict_s(shape(1, 16, 1024), eager, H200) == 167e-6
    assert predict_s(shape(512, 16, 8192), eager, H200) == predict_s(shape(512, 16, 8192), PLAIN, H200)


@pytest.mark.parametrize(
    ("heads", "factor"), [(16, 1.0), (32, 1.5), (64, 1.2), (8, 1.0), (128, 1.2), (20, 1.5 ** math.log2(20 / 16))]
)
def test_kernels_chosen_by_head_count_have_their_own_factor(heads: int, factor: float) -> None:
    """Known ones exactly, between them along a line in logarithms, outside as the nearest."""
    known = dataclasses.replace(PLAIN, work_factors=((16, 1.0), (32, 1.5), (64, 1.2)))
    load = dataclasses.replace(load_of(shape(128, heads, 8192), KernelForm(), H200), io_bytes=0)
    plain = dataclasses.replace(known, work_factors=())
    assert seconds(load, known) / seconds(load, plain) == pytest.approx(factor, rel=1e-6)


def test_a_form_that_needs_multiprocessors_refuses_a_device_without() -> None:
    """And the ideal one does not ask."""
    unknown = Device(None, None, None, None)
    with pytest.raises(BadInput, match="sm_count"):
        predict_s(shape(1, 16, 1024), PLAIN, unknown)
    assert predict_s(shape(1, 16, 1024), Calibration(0.0, 1e12, 1e15), unknown) > 0


forms = st.builds(
    KernelForm,
    row_tile=st.sampled_from([16, 64]),
    splits=st.sampled_from([None, 1, 4]),
    schedule=st.sampled_from(["waves", "persistent", "ideal"]),
    overlap=st.booleans(),
)
calibrations = st.builds(
    Calibration,
    t0_s=st.floats(0, 1e-4),
    bytes_per_s=st.floats(1e11, 8e12),
    flops_per_s=st.floats(1e13, 2e15),
    form=forms,
    item_s=st.floats(0, 1e-5),
    split_s=st.floats(0, 1e-7),
    cold_s=st.floats(0, 1e-5),
    floor_s=st.floats(0, 1e-3),
    l2_bytes_per_s=st.floats(8e12, 2e13),
    work_factors=st.sampled_from([(), ((16, 0.9), (128, 1.4))]),
)
heads = st.sampled_from([8, 16, 64, 128])


@given(calibrations, heads, st.integers(1, 300), st.integers(1, 100_000), st.integers(1, 5000))
def test_more_context_is_never_faster(c: Calibration, h: int, batch: int, context: int, more: int) -> None:
    """Whatever the form and the constants, as long as the L2 is no slower than memory."""
    assert predict_s(shape(batch, h, context), c, H200) <= predict_s(shape(batch, h, context + more), c, H200) * (
        1 + 1e-9
    )


@given(calibrations, heads, st.integers(1, 300), st.integers(1, 100_000), st.integers(1, 50))
def test_more_sessions_are_never_faster_for_a_kernel_that_splits_alike(
    c: Calibration, h: int, batch: int, context: int, more: int
) -> None:
    """A kernel that splits to fill the device may gain: at the next batch it has nothing to reduce."""
    form = dataclasses.replace(c.form, splits=c.form.splits or 1)
    fixed = dataclasses.replace(c, form=form)
    assert predict_s(shape(batch, h, context), fixed, B200) <= predict_s(shape(batch + more, h, context), fixed, B200)


@given(calibrations, heads, st.integers(1, 300), st.integers(1, 100_000))
def test_no_kernel_beats_its_own_roofs(c: Calibration, h: int, batch: int, context: int) -> None:
    """Padding, turns and overheads only add."""
    one = shape(batch, h, context)
    best_factor = min((factor for _, factor in c.work_factors), default=1.0)
    fastest_bytes_per_s = max(c.bytes_per_s, c.l2_bytes_per_s or 0)
    roofs_s = max(one.kv_bytes / fastest_bytes_per_s, one.flops / c.flops_per_s)
    assert predict_s(one, c, H200) >= best_factor * roofs_s * (1 - 1e-9)
