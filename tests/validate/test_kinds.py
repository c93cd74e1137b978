"""MLA in both forms computes the same; every kind is timed with its own bytes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.model import ModelSpec  # noqa: E402
from kvplan.validate.bench import CpuStopwatch  # noqa: E402
from kvplan.validate.kernels.torch_sdpa import BACKEND  # noqa: E402
from kvplan.validate.kinds import LatentStep, Scene, compare_kinds  # noqa: E402


def test_absorbed_and_restored_compute_the_same(spec: ModelSpec) -> None:
    step = LatentStep.of(Scene(spec, 2, 100, "cpu"))
    absorbed = step.absorbed(BACKEND)().transpose(0, 1).float()
    restored = step.restored()()[:, :, 0].float()
    assert (absorbed - restored).abs().max() <= 3e-2 * restored.abs().max()


def test_every_kind_stands_beside_the_bytes_of_its_cache(spec: ModelSpec) -> None:
    found = {c.kind: c for c in compare_kinds(Scene(spec, 1, 64, "cpu"), BACKEND, CpuStopwatch(), 0.01)}
    assert {kind: c.cache_bytes // 64 for kind, c in found.items()} == {
        "mla absorbed": 1152,
        "mla restored": 1152,
        "mha": 2 * 16 * 128 * 2,
        "gqa-8": 2 * 8 * 128 * 2,
        "mqa": 2 * 1 * 128 * 2,
    }
    assert all(c.measured_s > 0 for c in found.values())
