"""Shapes are held out, rows stand beside their predictions, and wrong kernels are found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.decode_kernel import DecodeShape  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate.kernels.torch_sdpa import BACKEND  # noqa: E402
from kvplan.validate.lab import Lab, grid, probes_of, tokens_of, within  # noqa: E402
from kvplan.validate.machine import DeviceProbes, Machine  # noqa: E402
from kvplan.validate.packing import latent_record  # noqa: E402
from kvplan.validate.predict import Predictor  # noqa: E402

MACHINE = Machine(device="cpu", name="test", processors=1, cache_bytes=MIB, memory_bytes=GIB, free_bytes=64 * MIB)
PROBES = DeviceProbes(10e9, 20e9, 200e9, 2e-6, {})
RECORD = latent_record("bf16")


@pytest.fixture
def lab() -> Lab:
    """With room for 14,563 tokens, a quarter of 64 MiB."""
    return Lab.equipped(MACHINE, PROBES, RECORD, block_size=None, timing_s=0.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_probe_is_in_the_grid(device: str) -> None:
    machine = replace(MACHINE, device=device, processors=132)
    assert not set(grid(device, RECORD)) & set(probes_of(machine, PROBES, RECORD))


def test_the_marks_to_beat_are_held_out() -> None:
    """Batch 128, 8,192 tokens, at 16 and at 128 heads."""
    assert {DecodeShape(128, 16, 8192), DecodeShape(128, 128, 8192)} <= set(grid("cuda", RECORD))


def test_on_a_small_device_smaller_probes_stand_in_and_stay_out_of_the_grid(lab: Lab) -> None:
    room = len(lab.pool.slots)
    assert all(tokens_of(s) <= room for s in (*lab.probe_shapes, *lab.held_out_shapes))
    assert len(lab.probe_shapes) >= 3
    assert not set(lab.probe_shapes) & set(lab.held_out_shapes)


@given(
    batch=st.integers(1, 1024),
    context=st.integers(64, 65536),
    tokens=st.integers(64, 10**6),
    heads=st.sampled_from([16, 128]),
)
def test_a_shape_shrinks_no_further_than_it_must(batch: int, context: int, tokens: int, heads: int) -> None:
    shape = DecodeShape(batch, heads, context)
    [found] = within([shape], tokens)
    assert tokens_of(found) <= tokens
    assert found.num_heads == heads
    assert found == shape or 4 * tokens_of(found) > tokens or found.batch == 1


def test_a_row_has_measured_and_predicted_side_by_side(lab: Lab) -> None:
    shape = DecodeShape(2, 16, 300)
    seconds = [(s, s.bytes / 1e9) for s in lab.probe_shapes]
    timing = lab.time(BACKEND, shape)
    row = lab.row(BACKEND, shape, timing, Predictor.fitted(MACHINE, PROBES, seconds), held_out=True)
    assert row.shape == {
        "batch": 2,
        "num_heads": 16,
        "context_tokens": 300,
        "query_tokens": 1,
        "kv_dtype": "bf16",
        "layout": "contiguous",
    }
    assert row.measured_s == timing.median_s
    assert row.bytes_per_s == pytest.approx(shape.bytes / row.measured_s)
    assert row.flops_per_s == pytest.approx(shape.flops / row.measured_s)
    assert set(row.predicted_s) == {"datasheet", "microbench", "probe"}


def test_a_right_kernel_passes(lab: Lab) -> None:
    check = lab.check(BACKEND, 16)
    assert not isinstance(check, str)
    assert check.ok


def test_a_wrong_kernel_fails(lab: Lab) -> None:
    wrong = replace(BACKEND, form=lambda *inputs: 1.1 * BACKEND.form(*inputs))
    check = lab.check(wrong, 16)
    assert not isinstance(check, str)
    assert not check.ok


@dataclass(frozen=True, slots=True)
class Refusing:
    name: str = "refusing"

    def refusal(self, problem: object) -> str:
        return "not today"


def test_a_kernel_that_refuses_says_why(lab: Lab) -> None:
    assert lab.check(Refusing(), 16) == "refusing, bf16, 16 heads: not today"
