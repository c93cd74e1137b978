"""What one kernel should take, on three levels that are always shown together.

datasheet: the peaks that the maker states. microbench: the same model with the rates and the launch time that this
device showed without attention. probe: the same model fitted to the kernel itself at other shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.catalog import load_gpu
from kvplan.decode_kernel import Calibration, DecodeShape, Device, datasheet, predict_s
from kvplan.errors import UnknownName
from kvplan.validate.calibrate import fit
from kvplan.validate.machine import DeviceProbes, Machine
from kvplan.validate.result import Level

_CPU_FLOPS_PER_CYCLE = {"amx_bf16": 1024.0, "avx512_bf16": 128.0, "avx512f": 64.0, "avx2": 32.0}
"""Of one core in bf16, or in float32 where it has no bf16 unit, two per multiply-add (Intel 64 and IA-32 Architectures
Optimization Reference Manual, chapters on AMX and AVX-512)."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the datasheet states. `bytes_per_s` is infinite on a CPU: how many memory channels are fitted cannot be
    seen, so that level counts arithmetic alone."""

    bytes_per_s: float
    flops_per_s: float


def peaks_of(machine: Machine) -> Peaks | None:
    """From the GPU catalogue, or from a CPU's instruction set and clock; None where neither is known."""
    return _gpu_peaks(machine.name) if machine.device == "cuda" else _cpu_peaks(machine.details)


def _gpu_peaks(name: str) -> Peaks | None:
    try:
        gpu = load_gpu(name)
    except UnknownName:
        return None
    rate = gpu.flops_per_s.of("bf16")
    return Peaks(gpu.bytes_per_s, rate) if gpu.bytes_per_s and rate else None


def _cpu_peaks(details: dict[str, str]) -> Peaks | None:
    flags = set(details.get("flags", "").split())
    rates = [rate for flag, rate in _CPU_FLOPS_PER_CYCLE.items() if flag in flags]
    clock = details.get("clock_mhz", "")
    if not rates or not clock.replace(".", "").isdecimal():
        return None
    return Peaks(math.inf, max(rates) * float(clock) * 1e6)


def device_of(machine: Machine, bytes_per_s: float, flops_per_s: float) -> Device:
    """The time model's device. One CPU thread does not overlap reading with arithmetic."""
    on_gpu = machine.device == "cuda"
    return Device(
        sm_count=machine.processors if on_gpu else 1,
        l2_bytes=machine.cache_bytes,
        bytes_per_s=bytes_per_s,
        flops_per_s=flops_per_s,
        overlap=on_gpu,
    )


@dataclass(frozen=True, slots=True)
class Predictor:
    """The three levels for one kernel in one KV dtype."""

    peaks: Device | None
    measured: Device
    launch_s: float
    calibration: Calibration

    @classmethod
    def fitted(cls, machine: Machine, probes: DeviceProbes, timings: Sequence[tuple[DecodeShape, float]]) -> Predictor:
        """Fit the probe level to the kernel's own times (shape, seconds)."""
        peaks = peaks_of(machine)
        measured = device_of(machine, probes.read_bytes_per_s, probes.gemm_flops_per_s)
        return cls(
            peaks=device_of(machine, peaks.bytes_per_s, peaks.flops_per_s) if peaks else None,
            measured=measured,
            launch_s=probes.launch_s,
            calibration=fit(timings, measured),
        )

    def predict(self, shape: DecodeShape) -> dict[Level, float | None]:
        """Seconds of one launch on each level."""
        return {
            "datasheet": predict_s(shape, datasheet(self.peaks), self.peaks) if self.peaks else None,
            "microbench": self.launch_s + predict_s(shape, datasheet(self.measured), self.measured),
            "probe": self.probe_s(shape),
        }

    def probe_s(self, shape: DecodeShape) -> float:
        """The probe level alone."""
        return predict_s(shape, self.calibration, self.measured)
