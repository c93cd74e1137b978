"""Held-out shapes are held out, the fastest form runs them, and wrong kernels are found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.decode_kernel import DecodeShape  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate import decode  # noqa: E402
from kvplan.validate.bench import CpuStopwatch  # noqa: E402
from kvplan.validate.decode import Contestant, Lab  # noqa: E402
from kvplan.validate.kernels.torch_sdpa import BACKEND  # noqa: E402
from kvplan.validate.machine import DeviceProbes, Machine  # noqa: E402
from kvplan.validate.packing import latent_record  # noqa: E402
from kvplan.validate.pool import CachePool  # noqa: E402
from kvplan.validate.predict import Predictor  # noqa: E402

MACHINE = Machine(device="cpu", name="test", processors=1, cache_bytes=MIB, memory_bytes=GIB, free_bytes=GIB)
PROBES = DeviceProbes(10e9, 20e9, 200e9, 2e-6, {})
RECORD = latent_record("bf16")


@pytest.fixture
def lab() -> Lab:
    return Lab(MACHINE, CpuStopwatch(), PROBES, CachePool.filled(RECORD, 4096, "cpu"), None, 0.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_probe_is_among_the_held_out_shapes(device: str) -> None:
    machine = replace(MACHINE, device=device, processors=132)
    assert not set(decode.grid(device, RECORD)) & set(decode.probes_of(machine, PROBES, RECORD))


def test_the_record_shapes_of_the_marks_to_beat_are_held_out() -> None:
    """Batch 128, 8,192 tokens, at 16 and at 128 heads."""
    grid = decode.grid("cuda", RECORD)
    assert {DecodeShape(128, 16, 8192), DecodeShape(128, 128, 8192)} <= set(grid)


def contestant(lab: Lab, bytes_per_s: float, name: str) -> Contestant:
    """A form whose probes took bytes / `bytes_per_s`."""
    shapes = decode.probes_of(MACHINE, PROBES, RECORD)
    predictor = Predictor.fitted(MACHINE, PROBES, [(s, s.bytes / bytes_per_s + s.flops / 1e12) for s in shapes])
    return Contestant(
        replace(BACKEND, name=name), predictor, [(s, lab.time(BACKEND, s)) for s in shapes[:1] if lab.fits(s)]
    )


def test_a_held_out_shape_is_run_by_the_form_that_is_predicted_to_be_fastest(lab: Lab) -> None:
    shape = DecodeShape(2, 16, 300)
    row = decode.held_out_row(lab, [contestant(lab, 1e9, "slow"), contestant(lab, 9e9, "fast")], shape)
    assert (row.kernel, row.held_out) == ("fast", True)
    assert row.shape == {
        "batch": 2,
        "num_heads": 16,
        "context_tokens": 300,
        "query_tokens": 1,
        "kv_dtype": "bf16",
        "layout": "contiguous",
    }
    assert row.bytes_per_s == pytest.approx(shape.bytes / row.measured_s)
    assert set(row.predicted_s) == set(row.error) == {"datasheet", "microbench", "probe"}


def test_probes_are_shown_without_errors(lab: Lab) -> None:
    rows = list(decode.probe_rows(lab, [contestant(lab, 1e9, "a")]))
    assert rows
    assert not any(row.held_out for row in rows)
    assert all(error is None for row in rows for error in row.error.values())


def test_a_right_kernel_passes(lab: Lab) -> None:
    check = decode.kernel_check(lab, BACKEND, 16)
    assert not isinstance(check, str)
    assert check.ok


def test_a_wrong_kernel_fails(lab: Lab) -> None:
    wrong = replace(
        BACKEND, form=lambda rows, entries, seen, scale, latent: 1.1 * BACKEND.form(rows, entries, seen, scale, latent)
    )
    check = decode.kernel_check(lab, wrong, 16)
    assert not isinstance(check, str)
    assert not check.ok


@dataclass(frozen=True, slots=True)
class Refusing:
    name: str = "refusing"

    def refusal(self, problem: object) -> str:
        return "not today"


def test_a_kernel_that_refuses_says_why(lab: Lab) -> None:
    assert decode.kernel_check(lab, Refusing(), 16) == "refusing, bf16, 16 heads: not today"


def test_shapes_beyond_the_pool_do_not_fit(lab: Lab) -> None:
    assert lab.fits(DecodeShape(1, 16, 4096))
    assert not lab.fits(DecodeShape(1, 16, 4097))


def test_drift_is_the_median_over_the_probes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One probe that jumps is not the machine."""
    form = contestant(lab, 1e9, "a")
    timing = form.timings[0][1]
    shapes = decode.probes_of(MACHINE, PROBES, RECORD)[:3]
    steady = replace(timing, samples_s=(1.0,) * 5)
    jumped = replace(timing, samples_s=(4.0,) * 5)
    form = replace(form, timings=[(shapes[0], jumped), (shapes[1], steady), (shapes[2], steady)])
    monkeypatch.setattr(Lab, "time", lambda self, backend, shape: replace(timing, samples_s=(1.05,) * 5))
    assert decode.drift(lab, form) == pytest.approx(0.05)
