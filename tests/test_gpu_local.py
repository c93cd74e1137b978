from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.catalog import load_gpu
from kvplan.errors import MissingExtra, Unsupported
from kvplan.gpu_local import LocalDevice, local_device

GIB = 2**30


class NvmlError(Exception):
    """Stands for pynvml.NVMLError."""


def torch(name: str = "NVIDIA H100 80GB HBM3", *, gpu: bool = True, **properties: Any) -> SimpleNamespace:
    found = {"name": name, "total_memory": 79 * GIB, "major": 9, "minor": 0, "multi_processor_count": 132, **properties}
    cuda = SimpleNamespace(is_available=lambda: gpu, get_device_properties=lambda _: SimpleNamespace(**found))
    return SimpleNamespace(
        cuda=cuda, __version__="9.9", version=SimpleNamespace(hip="7" if "gcnArchName" in found else None)
    )


def nvml(*, fails: bool = False) -> SimpleNamespace:
    def memory(_: object, version: int) -> SimpleNamespace:
        if fails:
            raise NvmlError("Not Supported")
        return SimpleNamespace(total=80 * GIB, reserved=GIB, version=version)

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlMemory_v2=2,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetCudaComputeCapability=lambda _: (9, 0),
        nvmlDeviceGetName=lambda _: "NVIDIA H100 80GB HBM3",
        nvmlSystemGetDriverVersion=lambda: "580.1",
    )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(**modules: Any) -> None:
        for name in ("torch", "pynvml"):
            monkeypatch.setitem(sys.modules, name, modules.get(name))

    return install


def test_torch_says_what_an_engine_sees(installed: Any) -> None:
    installed(torch=torch(), pynvml=nvml())
    assert local_device() == LocalDevice(
        name="NVIDIA H100 80GB HBM3",
        memory_bytes=79 * GIB,
        read_by="torch 9.9",
        compute_capability=(9, 0),
        sm_count=132,
    )


@pytest.mark.parametrize("modules", [{"pynvml": nvml()}, {"pynvml": nvml(), "torch": torch(gpu=False)}])
def test_nvml_takes_off_what_the_driver_keeps(installed: Any, modules: dict[str, Any]) -> None:
    installed(**modules)
    device = local_device()
    assert (device.memory_bytes, device.read_by) == (79 * GIB, "NVML, driver 580.1")


def test_without_a_reader_the_extra_is_named(installed: Any) -> None:
    installed()
    with pytest.raises(MissingExtra, match=r"pip install 'kvplan\[gpu\]'"):
        local_device()


@pytest.mark.parametrize("modules", [{"torch": torch(gpu=False)}, {"pynvml": nvml(fails=True)}])
def test_without_a_gpu_the_answer_is_a_refusal(installed: Any, modules: dict[str, Any]) -> None:
    installed(**modules)
    with pytest.raises(Unsupported, match=r"GPU 'local': "):
        local_device()


def test_a_known_device_keeps_its_figures_and_takes_the_measured_memory(installed: Any) -> None:
    installed(torch=torch())
    gpu = load_gpu("local")
    assert gpu.memory_bytes == 79 * GIB
    assert gpu.sources["memory_bytes"] == "this machine, read through torch 9.9"
    assert (gpu.name, gpu.flops_per_s) == ("h100", load_gpu("h100").flops_per_s)


def test_an_unknown_device_is_what_was_read_of_it(installed: Any) -> None:
    installed(torch=torch("AMD Instinct MI999", gcnArchName="gfx999:sramecc+", multi_processor_count=7))
    gpu = load_gpu("local")
    assert (gpu.name, gpu.vendor, gpu.gfx, gpu.sm_count) == ("amd-instinct-mi999", "amd", "gfx999", 7)
    assert gpu.bytes_per_s is None


def test_a_namesake_of_another_size_is_not_taken_for_the_known_one(installed: Any) -> None:
    installed(torch=torch("Orin", major=8, minor=7, multi_processor_count=4, total_memory=7 * GIB))
    assert load_gpu("local").flops_per_s.of("bf16") is None
