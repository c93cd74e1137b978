"""Three levels for one kernel, and where their peaks are from."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.decode_kernel import DecodeShape  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate.machine import DeviceProbes, Machine  # noqa: E402
from kvplan.validate.predict import Predictor, peaks_of  # noqa: E402

H200 = Machine(
    device="cuda",
    name="NVIDIA H200",
    processors=132,
    cache_bytes=50 * MIB,
    memory_bytes=140 * GIB,
    free_bytes=140 * GIB,
)
XEON = Machine(
    device="cpu",
    name="Xeon",
    processors=2,
    cache_bytes=MIB,
    memory_bytes=GIB,
    free_bytes=GIB,
    details={"flags": "avx2 avx512f avx512_bf16", "clock_mhz": "2600.0"},
)
PROBES = DeviceProbes(10e9, 20e9, 200e9, 2e-6, {})


def kernel_s(shape: DecodeShape) -> float:
    """A CPU kernel that reads at 4 GB/s and computes at 100 GFLOP/s, one after the other."""
    return shape.bytes / 4e9 + shape.flops / 100e9


def test_a_gpu_s_peaks_are_those_of_the_catalogue() -> None:
    peaks = peaks_of(H200)
    assert peaks is not None
    assert peaks.bytes_per_s == pytest.approx(4.8e12)
    assert peaks.flops_per_s == pytest.approx(989e12, rel=0.01)


def test_an_unknown_gpu_has_no_datasheet() -> None:
    assert peaks_of(replace(H200, name="Acme 9000")) is None


def test_a_cpu_s_peak_is_its_instruction_set_times_its_clock() -> None:
    peaks = peaks_of(XEON)
    assert peaks is not None
    assert peaks.flops_per_s == 128 * 2.6e9
    assert math.isinf(peaks.bytes_per_s)


@pytest.mark.parametrize(
    "details", [{}, {"flags": "sve", "clock_mhz": "2000"}, {"flags": "avx2", "clock_mhz": "unknown"}]
)
def test_an_unknown_cpu_has_no_datasheet(details: dict[str, str]) -> None:
    assert peaks_of(replace(XEON, details=details)) is None


def test_the_probe_level_finds_a_kernel_that_the_other_levels_miss() -> None:
    probes = [DecodeShape(b, h, s) for b, h, s in [(1, 16, 4096), (1, 128, 4096), (4, 16, 4096), (4, 128, 2048)]]
    predictor = Predictor.fitted(XEON, PROBES, [(s, kernel_s(s)) for s in probes])
    shape = DecodeShape(2, 64, 8192)
    predicted = predictor.predict(shape)
    assert predicted["probe"] == pytest.approx(kernel_s(shape), rel=0.05)
    assert predicted["datasheet"] == pytest.approx(shape.flops / (128 * 2.6e9))
    assert predicted["microbench"] == pytest.approx(shape.bytes / 10e9 + shape.flops / 200e9 + 2e-6)
    assert predictor.probe_s(shape) == predicted["probe"]


def test_a_device_without_a_datasheet_still_has_the_other_levels() -> None:
    shape = DecodeShape(2, 64, 8192)
    unknown = replace(XEON, details={})
    timings = [(s, kernel_s(s)) for s in (shape, replace(shape, batch=1), replace(shape, num_heads=16))]
    predicted = Predictor.fitted(unknown, PROBES, timings).predict(replace(shape, batch=4))
    assert predicted["datasheet"] is None
    assert predicted["microbench"] and predicted["probe"]
