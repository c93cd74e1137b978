from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from kvplan.catalog import GPU_FOLDER, gpu_names, load_gpu
from kvplan.errors import BadInput, UnknownName
from kvplan.gpu import GpuSpec, Rates, find, spelling
from kvplan.units import GIB

SPELLINGS = {"h100": ["h100-80gb", "h100-sxm"], "a100-40gb": ["a100"], "a100-80gb": ["a100"], "mi300x": []}

PRINTED_GIB = [
    ("h100", 79.19, "vLLM 0.19, https://github.com/llm-d-incubation/llm-d-planner/pull/205"),
    ("l40s", 44.42, "vLLM, https://github.com/vllm-project/vllm/issues/15815"),
    ("rtx-3090", 23.58, "vLLM, https://github.com/vllm-project/vllm/issues/10517"),
    ("t4", 14.56, "device query"),
    ("rtx-pro-6000", 95.01, "vLLM start-up log"),
    ("a100-80gb", 79.25, "torch, https://github.com/HiDream-ai/VAREdit/issues/6"),
    ("h200", 139.80, "vLLM start-up logs"),
    ("b200", 178.35, "driver, https://github.com/pytorch/ao/pull/4002"),
    ("gb10", 121.63, "vLLM, https://github.com/rwlove/home-ops/pull/13221"),
    ("mi300x", 191.98, "vLLM start-up logs"),
    ("rtx-5090", 31.36, "vLLM 0.28"),
]

ON_THE_BOX_GB = {
    "h100": 80,
    "h200": 141,
    "l40s": 48,
    "b200": 192,
    "rtx-4090": 24,
    "gb10": 128,
    "h20": 96,
    "v100-32gb": 32,
}


def spec(**changes: object) -> GpuSpec:
    base = GpuSpec(name="g", vendor="v", architecture="a", memory_bytes=GIB, sources={"memory_bytes": "here"})
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "gib", "source"), PRINTED_GIB, ids=[name for name, *_ in PRINTED_GIB])
def test_memory_is_what_the_driver_told_an_engine(name: str, gib: float, source: str) -> None:
    assert round(load_gpu(name).memory_bytes / GIB, 2) == gib


@pytest.mark.parametrize("name", ON_THE_BOX_GB)
def test_memory_is_below_the_figure_on_the_box(name: str) -> None:
    assert load_gpu(name).memory_bytes < ON_THE_BOX_GB[name] * GIB


def test_the_catalogue_covers_the_devices_in_use() -> None:
    assert len(gpu_names()) >= 35
    assert {load_gpu(n).vendor for n in gpu_names()} == {"nvidia", "amd", "intel", "huawei"}
    assert {n for n in gpu_names() if load_gpu(n).memory_kind == "unified"} == {
        "gb10",
        "jetson-agx-orin",
        "jetson-agx-thor",
    }


@pytest.mark.parametrize("name", gpu_names())
def test_a_device_is_consistent_with_itself(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.name == name
    assert bool(gpu.compute_capability) + bool(gpu.gfx) == (gpu.vendor in {"nvidia", "amd"})
    for rates in (gpu.flops_per_s, gpu.measured_flops_per_s):
        known = [getattr(rates, f.name) for f in fields(rates) if getattr(rates, f.name) is not None]
        assert all(1e12 < rate < 1e17 for rate in known)
    for dtype in ("bf16", "fp8"):
        measured, peak = gpu.measured_flops_per_s.of(dtype), gpu.flops_per_s.of(dtype)
        assert measured is None or (peak is not None and 0.4 * peak < measured < peak)
    assert gpu.measured_bytes_per_s is None or 0.8 * (gpu.bytes_per_s or 0) < gpu.measured_bytes_per_s < (
        gpu.bytes_per_s or 0
    )


@pytest.mark.parametrize("name", gpu_names())
def test_wider_types_are_not_faster(name: str) -> None:
    rates = [getattr(load_gpu(name).flops_per_s, dtype) for dtype in ("fp32", "tf32", "bf16", "fp8", "fp4")]
    known = [rate for rate in rates if rate is not None]
    assert known == sorted(known)


def test_a_chip_under_two_names_has_the_same_figures() -> None:
    h100, h200 = load_gpu("h100"), load_gpu("h200")
    assert h100.flops_per_s == h200.flops_per_s
    assert h100.shared_memory_per_block_bytes == h200.shared_memory_per_block_bytes == 227 * 1024


def test_no_spelling_is_claimed_by_two_devices_but_those_that_must_say_which() -> None:
    claims: dict[str, set[str]] = {}
    for name in gpu_names():
        for text in (name, *load_gpu(name).aliases):
            claims.setdefault(spelling(text), set()).add(name)
    assert {text for text, names in claims.items() if len(names) > 1} == {"a100", "v100"}


@pytest.mark.parametrize("text", ["NVIDIA H100-80GB", "h100_80g", "H100 80 GB", "h100-80gib", "H100"])
def test_a_name_is_found_however_it_is_spelt(text: str) -> None:
    assert find(text, SPELLINGS) == "h100"


def test_a_name_of_two_devices_is_refused_with_both() -> None:
    with pytest.raises(UnknownName, match="GPU 'A100' is one of a100-40gb, a100-80gb; say which"):
        find("A100", SPELLINGS)


def test_an_unknown_name_is_refused_with_near_matches() -> None:
    with pytest.raises(UnknownName, match=r"unknown GPU 'h101'; did you mean h100"):
        find("h101", SPELLINGS)


def test_rates_answer_none_for_what_is_unknown() -> None:
    rates = Rates(bf16=1e12)
    assert (rates.of("bf16"), rates.of("fp8"), rates.of("of"), rates.of("int3")) == (1e12, None, None, None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bytes_per_s": 1e12}, "sources.bytes_per_s: is missing; every figure names where it is from"),
        ({"flops_per_s": Rates(bf16=1e12)}, "sources.flops_per_s: is missing"),
        ({"sources": {}}, "sources.memory_bytes: is missing"),
        ({"sources": {"memory_bytes": "here", "l2_bytes": "there"}}, "sources.l2_bytes: no figure of that name"),
        ({"sources": {"memory_bytes": "here", "vendor": "there"}}, "sources.vendor: no figure of that name"),
        ({"sources": {"memory_bytes": " "}}, "sources.memory_bytes: is empty"),
        ({"memory_bytes": 80}, "memory_bytes: 80 is too small"),
    ],
)
def test_a_figure_without_a_source_is_an_error(changes: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        spec(**changes)


def test_a_spec_can_be_a_key() -> None:
    assert len({spec(), spec(), spec(memory_bytes=2 * GIB)}) == 2


@pytest.mark.groundtruth
def test_observed_totals_are_those_of_the_catalogue(groundtruth: Path) -> None:
    from kvplan.strict_yaml import parse

    for row in parse((groundtruth / "observations.yaml").read_bytes(), "observations"):
        if row["gpu"] in {"H100-80GB", "L40S", "Ascend 910B3"} and row["gpu_memory_gib"]:
            assert round(load_gpu(row["gpu"]).memory_bytes / GIB, 2) == row["gpu_memory_gib"], row["id"]


@pytest.mark.parametrize("path", sorted(GPU_FOLDER.iterdir()), ids=lambda path: path.stem)
def test_the_comment_beside_the_bytes_says_the_same_in_gib(path: Path) -> None:
    line = next(line for line in path.read_text().splitlines() if line.startswith("memory_bytes:"))
    value, _, comment = line.removeprefix("memory_bytes: ").partition("  # ")
    assert comment == f"{int(value) / GIB:.2f} GiB"


@pytest.mark.parametrize("path", sorted(GPU_FOLDER.iterdir()), ids=lambda path: path.stem)
def test_no_address_is_broken_over_two_lines(path: Path) -> None:
    """YAML joins lines with a space, which would end the address there."""
    assert not [line for line in path.read_text().splitlines() if "://" in line and line.endswith("-")]
