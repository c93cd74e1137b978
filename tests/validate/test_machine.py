"""Which device is found, and what its micro-benchmarks say."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import BadInput, Unsupported  # noqa: E402
from kvplan.units import MIB  # noqa: E402
from kvplan.validate.machine import DeviceProbes, find_machine, probe_device  # noqa: E402

PROBES = DeviceProbes(1e9, 1e9, 1e12, 1e-6, {"1x1x1": 1e12})


def test_the_cpu_is_always_there() -> None:
    machine = find_machine("cpu")
    assert machine.device == "cpu"
    assert machine.memory_bytes >= machine.free_bytes > 0
    assert machine.as_dict()["details"]["torch"] == torch.__version__


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_where_there_is_none_is_refused_in_one_line() -> None:
    assert find_machine("auto").device == "cpu"
    with pytest.raises(Unsupported, match="sees no CUDA device; use --device cpu"):
        find_machine("cuda")


def test_another_device_is_named() -> None:
    with pytest.raises(BadInput, match="'tpu' is not auto, cuda or cpu"):
        find_machine("tpu")


def test_probes_measure_every_rate() -> None:
    small = replace(find_machine("cpu"), cache_bytes=MIB, free_bytes=64 * MIB)
    found = probe_device(small, 0.01)
    assert min(found.read_bytes_per_s, found.copy_bytes_per_s, found.gemm_flops_per_s, found.launch_s) > 0
    assert found.gemm_flops_per_s == max(found.gemm_by_shape_flops_per_s.values())
    assert "128x8192x576" in found.gemm_by_shape_flops_per_s


@pytest.mark.parametrize(
    ("change", "drift"), [({}, 0.0), ({"read_bytes_per_s": 0.8e9}, 0.2), ({"gemm_flops_per_s": 1.3e12}, 0.3)]
)
def test_drift_is_the_largest_change_of_a_rate(change: dict[str, float], drift: float) -> None:
    assert PROBES.drift(replace(PROBES, **change)) == pytest.approx(drift)
