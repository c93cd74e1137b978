"""The real cache has the planned bytes, and a plan that is wrong shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import Unsupported  # noqa: E402
from kvplan.model import ModelSpec  # noqa: E402
from kvplan.units import GIB, MIB  # noqa: E402
from kvplan.validate import memory  # noqa: E402
from kvplan.validate.machine import Machine  # noqa: E402
from kvplan.validate.memory import MemoryCase, affordable, check_memory, plan_cases  # noqa: E402
from kvplan.validate.paged import Extent  # noqa: E402

MACHINE = Machine(device="cpu", name="test", processors=1, cache_bytes=MIB, memory_bytes=8 * GIB, free_bytes=8 * GIB)
IDS = [
    f"{kind}-{layout}"
    for kind in ("mla-bf16", "mla-fp8", "mla-fp8_ds_mla", "mha-bf16", "gqa-8-bf16", "mqa-bf16")
    for layout in ("contiguous", "paged")
]


def cases(spec: ModelSpec, budget_bytes: int = 64 * MIB) -> dict[str, MemoryCase]:
    return {c.id: c for c in plan_cases(spec, MACHINE, Extent(2, 130), budget_bytes)}


def test_every_kind_dtype_and_layout_is_planned(spec: ModelSpec) -> None:
    assert list(cases(spec)) == IDS


@pytest.mark.parametrize("name", IDS)
def test_storage_use_and_peak_equal_the_plan(spec: ModelSpec, name: str) -> None:
    checks, numeric = check_memory(cases(spec)[name], MACHINE)
    exact = [c for c in checks if c.quantity != "process"]
    assert exact
    assert all(c.ok for c in exact), exact
    assert numeric.ok, numeric


def test_process_memory_is_within_one_percent(spec: ModelSpec) -> None:
    case = replace(cases(spec)["mla-bf16-contiguous"], extent=Extent(16, 2048))
    checks, _ = check_memory(case, MACHINE)
    process = next(c for c in checks if c.quantity == "process")
    assert process.ok, process


def test_a_paged_cache_is_planned_in_whole_blocks(spec: ModelSpec) -> None:
    planned = {name: case.planned_bytes(130) for name, case in cases(spec).items()}
    assert planned["mla-bf16-contiguous"] == 2 * 2 * 130 * 1152
    assert planned["mla-bf16-paged"] == 2 * 2 * 192 * 1152
    assert planned["mla-fp8_ds_mla-paged"] == 2 * 2 * 192 * 656


def test_a_wrong_plan_fails(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases(spec)["mla-bf16-paged"]
    monkeypatch.setattr(MemoryCase, "planned_bytes", lambda self, tokens: 2 * 2 * tokens * 1152)
    checks, _ = check_memory(case, MACHINE)
    assert not all(c.ok for c in checks if c.quantity != "process")


def test_a_kernel_that_reads_unwritten_slots_fails(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader hands out the whole capacity, whose last slots are poison."""
    case = replace(cases(spec)["mla-bf16-contiguous"], extent=Extent(2, 131))
    real = memory.PagedCache.reader
    monkeypatch.setattr(memory, "_values", lambda case, device, seed: torch.randn(2, 130, 576))
    monkeypatch.setattr(memory.PagedCache, "reader", lambda self: lambda: self.blocks)
    _, numeric = check_memory(case, MACHINE)
    assert not numeric.ok
    monkeypatch.setattr(memory.PagedCache, "reader", real)
    assert check_memory(case, MACHINE)[1].ok


def test_layers_shrink_to_the_budget(spec: ModelSpec) -> None:
    layer_bytes = 2 * 130 * 1152
    assert cases(spec, layer_bytes)["mla-bf16-contiguous"].spec.num_hidden_layers == 1
    assert cases(spec, 10**9)["mla-bf16-contiguous"].spec.num_hidden_layers == 2


def test_a_small_device_gets_a_smaller_batch_then_a_shorter_context(spec: ModelSpec) -> None:
    """MHA of 16 heads takes 8,192 B a token and layer; six copies must fit."""
    token_bytes = 6 * 2 * 16 * 128 * 2
    small = replace(MACHINE, free_bytes=2 * 1000 * token_bytes)
    assert affordable(spec, MACHINE, Extent(8, 1000)) == Extent(8, 1000)
    assert affordable(spec, small, Extent(8, 1000)) == Extent(2, 1000)
    assert affordable(spec, replace(MACHINE, free_bytes=300 * token_bytes), Extent(8, 1000)) == Extent(1, 250)


def test_what_does_not_fit_is_refused_by_the_plan(spec: ModelSpec) -> None:
    small = replace(MACHINE, free_bytes=MIB)
    with pytest.raises(Unsupported, match=r"mla-bf16-contiguous: 64 sessions of 4,096 tokens need .* 1\.00 MiB free"):
        plan_cases(spec, small, Extent(64, 4096), MIB)
