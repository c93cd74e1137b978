"""What the device counts, and what allocators make of a request."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import Unsupported  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate import gauge  # noqa: E402


@pytest.mark.parametrize(("request_bytes", "allocated"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB)])
def test_cuda_rounds_a_tensor_to_512_bytes(request_bytes: int, allocated: int) -> None:
    assert gauge.allocated_bytes(request_bytes) == allocated


@pytest.mark.parametrize(
    ("request_bytes", "reserved"), [(10 * MIB, 10 * MIB), (10 * MIB + 1, 12 * MIB), (10 * MIB - 1, None), (512, None)]
)
def test_cuda_reserves_large_tensors_in_segments_of_2_mib(request_bytes: int, reserved: int | None) -> None:
    assert gauge.reserved_bytes(request_bytes) == reserved


def test_anonymous_memory_is_read_in_bytes(tmp_path: Path) -> None:
    file = tmp_path / "smaps_rollup"
    file.write_text("55e-7ff ---p 00000000 00:00 0 [rollup]\nRss:   900 kB\nAnonymous:   700 kB\n")
    assert gauge.anonymous_bytes(file) == 700 * 1024
    assert gauge.anonymous_bytes(tmp_path / "absent") is None


def test_peak_counts_what_lives_at_one_time() -> None:
    def step() -> None:
        for _ in range(3):
            torch.empty(MIB, dtype=torch.uint8)
        both = torch.empty(2 * MIB, dtype=torch.uint8), torch.empty(3 * MIB, dtype=torch.uint8)
        del both

    assert gauge.peak_bytes(step, "cpu") == 5 * MIB


def test_out_of_memory_names_the_plan_and_the_device() -> None:
    expected = pytest.raises(Unsupported, match=r"planned 2\.00 GiB .* 1\.00 GiB free")
    with expected, gauge.out_of_memory_named(2 * GIB, GIB, "mla"):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(Unsupported, match="mla: planned"), gauge.out_of_memory_named(2 * GIB, GIB, "mla"):
        torch.empty(2**61, dtype=torch.uint8)


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="another"), gauge.out_of_memory_named(1, 1, "mla"):
        raise RuntimeError("another matter")
