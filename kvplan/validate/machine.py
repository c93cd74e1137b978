"""Which device this is, and what it can do apart from attention: read, copy, multiply, launch."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from kvplan.errors import BadInput, Unsupported
from kvplan.units import GIB, MIB
from kvplan.validate.bench import Stopwatch, stopwatch

_SMI_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")
_ISA_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "sve", "bf16")
_DEFAULT_CPU_CACHE_BYTES = 32 * MIB


@dataclass(frozen=True, slots=True)
class Machine:
    """The device under test. `details`: versions, clocks and limits as its tools report them."""

    device: str
    name: str
    processors: int
    cache_bytes: int
    memory_bytes: int
    free_bytes: int
    details: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Plain values for a result file."""
        return asdict(self)


def find_machine(device: str) -> Machine:
    """`auto`: the first CUDA device, else the CPU. `Unsupported` where CUDA is asked for and absent."""
    if device not in {"auto", "cuda", "cpu"}:
        raise BadInput(f"--device: {device!r} is not auto, cuda or cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise Unsupported(f"--device cuda: torch {torch.__version__} sees no CUDA device; use --device cpu")
    return _cpu() if device == "cpu" or not torch.cuda.is_available() else _cuda()


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "python": platform.python_version(), "system": platform.platform()}


def _cpu() -> Machine:
    fields = _proc_fields(Path("/proc/meminfo"))
    info = _proc_fields(Path("/proc/cpuinfo"))
    details = _versions() | {
        "clock_mhz": info.get("cpu MHz", "unknown"),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "flags": " ".join(f for f in info.get("flags", "").split() if f in _ISA_FLAGS),
    }
    return Machine(
        device="cpu",
        name=info.get("model name") or platform.processor() or platform.machine(),
        processors=os.cpu_count() or 1,
        cache_bytes=_last_level_cache_bytes(),
        memory_bytes=_kib(fields.get("MemTotal")),
        free_bytes=_kib(fields.get("MemAvailable")),
        details=details,
    )


def _proc_fields(path: Path) -> dict[str, str]:
    """The first value of each `key : value` line; empty where the file does not exist."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":")[::2] for line in reversed(lines) if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _kib(text: str | None) -> int:
    """`"24689396 kB"` in bytes; 4 GiB where the system does not tell."""
    return int(text.split()[0]) * 1024 if text else 4 * GIB


def _last_level_cache_bytes() -> int:
    """The largest cache that Linux reports for the first CPU."""
    sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(s.rstrip("K")) * 1024 for s in sizes if s.endswith("K")), default=_DEFAULT_CPU_CACHE_BYTES)


def _cuda() -> Machine:
    properties = torch.cuda.get_device_properties(0)
    free_bytes, memory_bytes = torch.cuda.mem_get_info(0)
    details = _versions() | {
        "cuda": torch.version.cuda or "unknown",
        "compute_capability": f"{properties.major}.{properties.minor}",
        **_nvidia_smi(),
    }
    return Machine(
        device="cuda",
        name=properties.name,
        processors=properties.multi_processor_count,
        cache_bytes=properties.L2_cache_size,
        memory_bytes=memory_bytes,
        free_bytes=free_bytes,
        details=details,
    )


def _nvidia_smi() -> dict[str, str]:
    """Driver, clocks, power limit and temperature, read only; empty where the tool is absent."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    command = [tool, f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader", "--id=0"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    values = [value.strip() for value in answer.stdout.split(",")]
    return dict(zip(_SMI_FIELDS, values, strict=True)) if len(values) == len(_SMI_FIELDS) else {}


@dataclass(frozen=True, slots=True)
class DeviceProbes:
    """Micro-benchmarks that know nothing of attention.

    read: a sum over memory far larger than the last cache. copy: reads and writes counted. gemm: the best square
    bf16 product; `gemm_by_shape_flops_per_s` has every shape, those of attention's two products with 16 and 128 rows
    among them. launch: the shortest step that does nothing.
    """

    read_bytes_per_s: float
    copy_bytes_per_s: float
    gemm_flops_per_s: float
    launch_s: float
    gemm_by_shape_flops_per_s: dict[str, float]

    def drift(self, other: DeviceProbes) -> float:
        """The largest relative change of a rate between two runs of the probes."""
        pairs = (
            (self.read_bytes_per_s, other.read_bytes_per_s),
            (self.gemm_flops_per_s, other.gemm_flops_per_s),
        )
        return max(abs(b / a - 1) for a, b in pairs)

    def as_dict(self) -> dict[str, object]:
        """Plain values for a result file."""
        return asdict(self)


def probe_device(machine: Machine, budget_s: float) -> DeviceProbes:
    """Run every micro-benchmark within about `budget_s` seconds."""
    watch = stopwatch(machine.device)
    shapes = _gemm_shapes(machine.device)
    slot_s = budget_s / (len(shapes) + 3)
    floats = torch.ones(_stream_bytes(machine) // 4, device=machine.device)
    read_s = watch.time([floats.sum], slot_s).median_s
    half = len(floats) // 2
    copy_s = watch.time([lambda: floats[:half].copy_(floats[half : 2 * half])], slot_s).median_s
    gemms = {_shape_name(shape): _gemm_flops_per_s(watch, shape, machine.device, slot_s) for shape in shapes}
    return DeviceProbes(
        read_bytes_per_s=floats.nbytes / read_s,
        copy_bytes_per_s=2 * half * 4 / copy_s,
        gemm_flops_per_s=max(gemms.values()),
        launch_s=_launch_s(watch, machine.device, slot_s),
        gemm_by_shape_flops_per_s=gemms,
    )


def _stream_bytes(machine: Machine) -> int:
    """Twice the last-level cache, between 256 MiB and 1 GiB, at most a quarter of what is free."""
    wanted = min(max(2 * machine.cache_bytes, 256 * MIB), GIB)
    return min(wanted, machine.free_bytes // 4) // 8 * 8


def _gemm_shapes(device: str) -> tuple[tuple[int, int, int], ...]:
    """(M, N, K): square ones, then Q x latent^T and weights x latent of one 8,192-token session."""
    squares = (4096, 8192) if device == "cuda" else (512, 1024)
    attention = ((rows, n, k) for rows in (16, 128) for n, k in ((8192, 576), (512, 8192)))
    return (*((n, n, n) for n in squares), *attention)


def _shape_name(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))


def _gemm_flops_per_s(watch: Stopwatch, shape: tuple[int, int, int], device: str, budget_s: float) -> float:
    m, n, k = shape
    a = torch.randn(m, k, device=device).to(torch.bfloat16)
    b = torch.randn(n, k, device=device).to(torch.bfloat16).t()
    return 2 * m * n * k / watch.time([lambda: torch.mm(a, b)], budget_s).median_s


def _launch_s(watch: Stopwatch, device: str, budget_s: float) -> float:
    """One in-place addition to one element."""
    cell: Tensor = torch.zeros(1, device=device)
    return median(watch.time([lambda: cell.add_(1)], budget_s).samples_s)
