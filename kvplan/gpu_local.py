"""The first GPU of this machine, as torch or NVIDIA's management library sees it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kvplan.errors import MissingExtra, Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevice:
    """What this machine says of its device 0. `memory_bytes`: what an engine would call its total."""

    name: str
    memory_bytes: int
    read_by: str
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    gfx: str | None = None


def local_device() -> LocalDevice:
    """Device 0 by torch, which reports what engines see, else by NVML.

    Raises `MissingExtra` where neither is installed and `Unsupported` where neither finds a GPU.
    """
    torch, nvml = _module("torch"), _module("pynvml")
    if torch is None and nvml is None:
        raise MissingExtra("GPU 'local': needs nvidia-ml-py or torch; pip install 'kvplan[gpu]'")
    if torch is not None and torch.cuda.is_available():
        return _by_torch(torch)
    if nvml is None:
        raise Unsupported("GPU 'local': torch finds no GPU here; name one of `kvplan show gpus` or give a YAML file")
    return _by_nvml(nvml)


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


def _by_torch(torch: Any) -> LocalDevice:
    properties = torch.cuda.get_device_properties(0)
    amd = bool(torch.version.hip)
    return LocalDevice(
        name=properties.name,
        memory_bytes=properties.total_memory,
        read_by=f"torch {torch.__version__}",
        compute_capability=None if amd else (properties.major, properties.minor),
        sm_count=properties.multi_processor_count,
        gfx=properties.gcnArchName.partition(":")[0] if amd else None,
    )


def _by_nvml(nvml: Any) -> LocalDevice:
    """NVML's total includes what the driver keeps for itself; an engine sees the rest."""
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        return LocalDevice(
            name=nvml.nvmlDeviceGetName(handle),
            memory_bytes=memory.total - memory.reserved,
            read_by=f"NVML, driver {nvml.nvmlSystemGetDriverVersion()}",
            compute_capability=(major, minor),
        )
    except nvml.NVMLError as error:
        raise Unsupported(f"GPU 'local': NVML cannot read device 0: {error}") from error
