"""The fastest form runs a held-out shape, probes judge drift, and what cannot run does not stop the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.decode_kernel import DecodeShape  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate import contest  # noqa: E402
from kvplan.validate.bench import Timing  # noqa: E402
from kvplan.validate.contest import MIN_HELD_OUT, Contest, Contestant, drift, fastest  # noqa: E402
from kvplan.validate.kernels._torch import TorchForm  # noqa: E402
from kvplan.validate.kernels.torch_sdpa import BACKEND  # noqa: E402
from kvplan.validate.lab import Lab  # noqa: E402
from kvplan.validate.machine import DeviceProbes, Machine  # noqa: E402
from kvplan.validate.packing import latent_record  # noqa: E402
from kvplan.validate.predict import Predictor  # noqa: E402

MACHINE = Machine(device="cpu", name="test", processors=1, cache_bytes=MIB, memory_bytes=GIB, free_bytes=64 * MIB)
PROBES = DeviceProbes(10e9, 20e9, 200e9, 2e-6, {})
SHAPE = DecodeShape(2, 16, 300)


@pytest.fixture
def lab() -> Lab:
    return Lab.equipped(MACHINE, PROBES, latent_record("bf16"), block_size=None, timing_s=0.0)


def contestant(lab: Lab, bytes_per_s: float, name: str) -> Contestant:
    """A form whose probes took bytes / `bytes_per_s` and some arithmetic."""
    seconds = [(s, s.bytes / bytes_per_s + s.flops / 1e12) for s in lab.probe_shapes]
    timings = [(s, Timing((t,) * 5, t)) for s, t in seconds]
    return Contestant(replace(BACKEND, name=name), Predictor.fitted(MACHINE, PROBES, seconds), timings)


def finished(lab: Lab, *backends: TorchForm, end_s: float = 1e9) -> Contest:
    found = Contest(lab)
    for _ in found.run(backends, lambda: 0.0, end_s):
        pass
    return found


def test_the_fastest_is_by_prediction(lab: Lab) -> None:
    slow, fast = contestant(lab, 1e9, "slow"), contestant(lab, 9e9, "fast")
    assert fastest([slow, fast], SHAPE) is fast


def test_probes_and_held_out_shapes_are_told_apart(lab: Lab) -> None:
    found = finished(lab, BACKEND)
    held_out = [r for r in found.rows if r.held_out]
    assert len(held_out) == len(lab.held_out_shapes)
    assert len(found.rows) - len(held_out) == len(lab.probe_shapes)
    assert all(error is None for r in found.rows if not r.held_out for error in r.error.values())
    assert found.drifts.keys() == {"torch-sdpa"}


def test_without_time_only_the_most_telling_shapes_are_measured(lab: Lab) -> None:
    found = finished(lab, BACKEND, end_s=0.0)
    assert len(lab.held_out_shapes) > MIN_HELD_OUT
    held_out = [(r.shape["batch"], r.shape["num_heads"], r.shape["context_tokens"]) for r in found.rows if r.held_out]
    assert held_out == [(s.batch, s.num_heads, s.context_tokens) for s in lab.held_out_shapes[:MIN_HELD_OUT]]


def test_a_wrong_kernel_is_shown_and_not_timed(lab: Lab) -> None:
    found = finished(
        lab, replace(BACKEND, name="torch-wrong", form=lambda *inputs: 1.1 * BACKEND.form(*inputs)), BACKEND
    )
    assert [c.ok for c in found.numerics] == [False, False, True, True]
    assert {r.kernel for r in found.rows} == {"torch-sdpa"}


def test_a_kernel_that_cannot_be_launched_is_noted_and_the_others_run(lab: Lab) -> None:
    def broken(*inputs: object) -> torch.Tensor:
        raise RuntimeError("no kernel image\nis available")

    found = finished(lab, replace(BACKEND, name="broken", form=broken), BACKEND)
    assert found.notes == ["broken, bf16: no kernel image is available"]
    assert {r.kernel for r in found.rows} == {"torch-sdpa"}


def test_a_bug_is_not_swallowed(lab: Lab) -> None:
    def buggy(*inputs: object) -> torch.Tensor:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        finished(lab, replace(BACKEND, form=buggy))


def test_libraries_share_the_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second library has as much as the first left over."""
    ends: list[float] = []

    def noted(self: Contest, group: Sequence[TorchForm], clock_s: object, end_s: float) -> list[str]:
        ends.append(end_s)
        return []

    monkeypatch.setattr(Contest, "_library", noted)
    finished(
        lab, replace(BACKEND, name="one-a"), replace(BACKEND, name="one-b"), replace(BACKEND, name="two"), end_s=10.0
    )
    assert ends == [5.0, 10.0]


def test_drift_is_the_median_over_the_probes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """One probe that jumps is not the machine."""
    shapes = lab.probe_shapes[:3]
    timings = [(s, Timing((t,) * 5, t)) for s, t in zip(shapes, (4.0, 1.0, 1.0), strict=True)]
    form = replace(contestant(lab, 1e9, "a"), timings=timings)
    monkeypatch.setattr(Lab, "time", lambda self, backend, shape: Timing((1.05,) * 5, 1.05))
    assert drift(lab, form) == pytest.approx(0.05)


def test_cost_is_at_least_what_a_timing_takes(lab: Lab) -> None:
    forms = [contestant(lab, 1e3, "very slow")]
    assert contest.cost_s(lab, forms, SHAPE) > 6 * SHAPE.bytes / 1e3 / 2
    assert contest.cost_s(replace(lab, timing_s=5.0), [contestant(lab, 1e12, "fast")], SHAPE) == 5.0
