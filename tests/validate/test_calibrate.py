"""Probes and fits: a calibration that made the times is found again, and says what the shapes not timed take."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable

import pytest

from kvplan.decode_kernel import Calibration, DecodeShape, Device, KernelForm, predict_s
from kvplan.errors import BadInput
from kvplan.validate.calibrate import fit, forms_of, gpu_forms, nearest, probe_shapes

H200 = Device(132, 62_914_560, 4.8e12, 989e12)
H20 = Device(78, 62_914_560, 4e12, 148e12)
A100 = Device(108, 41_943_040, 2.039e12, 312e12)
B200 = Device(148, 132_644_864, 7.7e12, 2250e12)
CPU = Device(1, 1 << 21, 10e9, 100e9, overlap=False)

FLASH_MLA = Calibration(
    t0_s=9e-6, bytes_per_s=4.4e12, flops_per_s=650e12, form=KernelForm(), item_s=3e-6, split_s=40e-9, cold_s=5e-6,
    floor_s=5e-6, io_bytes_per_s=2e12, l2_bytes_per_s=5e12, work_factors=((16, 1.0), (32, 1.0), (64, 1.02), (128, 1.0)),
)  # fmt: skip
WAVES_ON_H20 = dataclasses.replace(FLASH_MLA, bytes_per_s=3.4e12, flops_per_s=120e12)
PERSISTENT_ON_H20 = dataclasses.replace(WAVES_ON_H20, form=KernelForm(schedule="persistent"))
UNSPLIT = dataclasses.replace(FLASH_MLA, form=KernelForm(splits=1), bytes_per_s=1.6e12, flops_per_s=90e12)
EAGER_TRITON = dataclasses.replace(
    FLASH_MLA, form=KernelForm(16, 4), bytes_per_s=1.6e12, flops_per_s=35e12, floor_s=330e-6
)
DEQUANTISING = dataclasses.replace(FLASH_MLA, form=KernelForm(overlap=False), bytes_per_s=0.35e12)
ONE_ODD_KERNEL = dataclasses.replace(
    FLASH_MLA, bytes_per_s=5.7e12, flops_per_s=1400e12,
    work_factors=((16, 1.0), (32, 1.5), (64, 1.0), (128, 1.0)),
)  # fmt: skip

GRID = [
    DecodeShape(batch, heads, context)
    for heads, batch, context in itertools.product(
        (16, 32, 64, 128), (1, 4, 16, 38, 100, 128, 512), (1024, 4096, 10_000, 65536)
    )
    if batch * context <= 2**23
]
"""Held out: most of these shapes are far from any probe."""


def timings(
    shapes: Iterable[DecodeShape], truth: Calibration, device: Device, noise: float = 0.0
) -> list[tuple[DecodeShape, float]]:
    """Times that `truth` makes, with log-normal noise from a fixed seed."""
    chance = random.Random(7)
    return [(s, predict_s(s, truth, device) * chance.lognormvariate(0, noise)) for s in shapes]


def share_within(bound: float, fitted: Calibration, truth: Calibration, device: Device) -> float:
    """Of the held-out shapes."""
    errors = [abs(predict_s(s, fitted, device) / predict_s(s, truth, device) - 1) for s in GRID]
    return sum(error <= bound for error in errors) / len(errors)


@pytest.mark.parametrize(
    ("truth", "device"),
    [
        (FLASH_MLA, H200),
        (WAVES_ON_H20, H20),
        (PERSISTENT_ON_H20, H20),
        (UNSPLIT, A100),
        (EAGER_TRITON, A100),
        (DEQUANTISING, H200),
        (ONE_ODD_KERNEL, B200),
    ],
    ids=["flash-mla", "waves", "persistent", "unsplit", "eager-triton", "dequantising", "odd-head-count"],
)
def test_a_dozen_noisy_probes_find_the_kernel_again(truth: Calibration, device: Device) -> None:
    """2 % noise; the form is found where it matters, and 95 in 100 shapes that were not timed lie within 10 %."""
    fitted = fit(timings(probe_shapes(device), truth, device, noise=0.02), device)
    assert fitted.form.row_tile == truth.form.row_tile
    assert fitted.form.splits == truth.form.splits
    assert share_within(0.10, fitted, truth, device) >= 0.95


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        (WAVES_ON_H20, lambda f: f.schedule == "persistent"),
        (EAGER_TRITON, lambda f: f.row_tile == 64),
        (DEQUANTISING, lambda f: f.overlap),
    ],
    ids=["without-waves", "without-narrow-tiles", "without-a-pass-of-its-own"],
)
def test_the_wrong_form_predicts_worse(truth: Calibration, wrong: Callable[[KernelForm], bool]) -> None:
    """So the forms are no mere choice of words: without the right one more shapes are missed."""
    device = H20 if truth is WAVES_ON_H20 else A100 if truth is EAGER_TRITON else H200
    probes = timings(probe_shapes(device), truth, device)
    right = share_within(0.10, fit(probes, device), truth, device)
    missing = share_within(0.10, fit(probes, device, forms=filter(wrong, gpu_forms())), truth, device)
    assert missing <= right - 0.08


def test_exact_probes_give_the_rates_back() -> None:
    """Without noise, bandwidth and arithmetic rate come out within a tenth of what made the times."""
    fitted = fit(timings(probe_shapes(H200), FLASH_MLA, H200), H200, forms=[KernelForm()])
    factors = dict(fitted.work_factors)
    assert fitted.bytes_per_s / factors[16] == pytest.approx(FLASH_MLA.bytes_per_s, rel=0.1)
    assert fitted.flops_per_s / factors[128] == pytest.approx(FLASH_MLA.flops_per_s, rel=0.1)


@pytest.mark.parametrize("place", range(12))
def test_one_bad_timing_does_not_bend_the_rest(place: int) -> None:
    """A probe that took five times as long, as happens on shared machines."""
    probes = timings(probe_shapes(H200), FLASH_MLA, H200, noise=0.01)
    probes[place] = (probes[place][0], 5 * probes[place][1])
    assert share_within(0.20, fit(probes, H200), FLASH_MLA, H200) >= 0.85


def test_a_constant_left_out_stays_at_rest() -> None:
    """And costs accuracy: an eager launch cannot be had without its floor."""
    probes = timings(probe_shapes(A100), EAGER_TRITON, A100)
    fitted = fit(probes, A100, without=["floor_s", "work_factors"])
    assert (fitted.floor_s, fitted.work_factors) == (0.0, ())
    assert share_within(0.10, fitted, EAGER_TRITON, A100) < share_within(0.10, fit(probes, A100), EAGER_TRITON, A100)


def test_a_cpu_has_three_constants_and_six_probes() -> None:
    """t = t0 + bytes / BW + FLOPs / F, found again exactly enough for 5 %."""
    truth = Calibration(20e-6, 8e9, 70e9, KernelForm(1, 1, "ideal", overlap=False))
    probes = timings(probe_shapes(CPU), truth, CPU, noise=0.02)
    fitted = fit(probes, CPU)
    assert len(probes) == 6
    assert fitted.work_factors == ()
    assert share_within(0.05, fitted, truth, CPU) >= 0.95


def test_an_unknown_device_gets_a_plain_roofline() -> None:
    """No multiprocessors, no turns; the fit still works and its forms need nothing unknown."""
    unknown = Device(None, None, None, None)
    truth = Calibration(15e-6, 3e12, 400e12, KernelForm(64, 1, "ideal"))
    fitted = fit(timings(probe_shapes(unknown), truth, unknown), unknown)
    assert {form.schedule for form in forms_of(unknown)} == {"ideal"}
    assert share_within(0.10, fitted, truth, unknown) >= 0.95


@pytest.mark.parametrize("device", [H200, CPU], ids=["gpu", "cpu"])
def test_probes_are_distinct_carry_the_record_size_and_fit_a_small_device(device: Device) -> None:
    """At most 12, none above 2.25 GiB of bf16 cache."""
    probes = probe_shapes(device, kv_bytes_per_token=656)
    assert len(set(probes)) == len(probes) <= 12
    assert {p.kv_bytes_per_token for p in probes} == {656}
    assert max(p.batch * p.context_tokens * 1152 for p in probes) <= 2.25 * 2**30


def test_probes_of_a_given_grid_are_its_own_shapes_and_at_most_half() -> None:
    """The nearest ones, each once, so that something is left to predict."""
    for count in (0, 1, 5, 9, len(GRID)):
        some = random.Random(count).sample(GRID, count)
        chosen = probe_shapes(H200, available=some)
        assert len(set(chosen)) == len(chosen) == min(12, count // 2)
        assert set(chosen) <= set(some)


def test_the_nearest_shape_keeps_the_head_count_first() -> None:
    """Another head count may be another kernel."""
    near, same_heads = DecodeShape(256, 32, 8192), DecodeShape(1, 16, 1024)
    assert nearest(DecodeShape(256, 16, 8192), [near, same_heads]) == same_heads


@pytest.mark.parametrize("time_s", [0.0, -1e-6, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(time_s: float) -> None:
    """By its shape."""
    probes = timings(probe_shapes(H200), FLASH_MLA, H200)
    with pytest.raises(BadInput, match="is no time"):
        fit([*probes, (GRID[0], time_s)], H200)


def test_too_few_probes_are_refused() -> None:
    """Two timings fix no model."""
    with pytest.raises(BadInput, match="2 timings"):
        fit(timings(GRID[:2], FLASH_MLA, H200), H200)
