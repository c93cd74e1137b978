"""How much memory a device says it holds, and what its allocator makes of a request.

CPU: `Anonymous` in /proc/self/smaps_rollup, the process's own pages. CUDA: torch's caching allocator, whose rounding
is known: every request to 512 B, and from 10 MiB on whole segments of 2 MiB (torch c10/core/AllocatorConfig.h,
kMinBlockSize, kMinLargeAlloc, kRoundLarge).
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from kvplan.arith import round_up
from kvplan.errors import Unsupported
from kvplan.units import MIB, format_bytes

CUDA_BLOCK_BYTES = 512
CUDA_SEGMENT_BYTES = 2 * MIB
CUDA_LARGE_BYTES = 10 * MIB


def anonymous_bytes(path: Path = Path("/proc/self/smaps_rollup")) -> int | None:
    """The process's private pages; None where the system does not tell."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:")), None)


def release_freed_pages() -> None:
    """Give freed pages back to the system where the C library can (glibc): it keeps them for later requests, and a
    tensor that took them would not show as growth."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def allocated_bytes(request_bytes: int) -> int:
    """What torch's CUDA allocator counts as allocated for one tensor."""
    return round_up(request_bytes, CUDA_BLOCK_BYTES)


def reserved_bytes(request_bytes: int) -> int | None:
    """What it takes from the driver for one tensor with no free segment at hand; None below 10 MiB, where segments are
    shared."""
    return round_up(request_bytes, CUDA_SEGMENT_BYTES) if request_bytes >= CUDA_LARGE_BYTES else None


def peak_bytes(step: Callable[[], object], device: str) -> int:
    """The most that `step` has allocated at one time, beyond what was there."""
    return _cuda_peak_bytes(step) if device == "cuda" else _cpu_peak_bytes(step)


def _cuda_peak_bytes(step: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before_bytes = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before_bytes


def _cpu_peak_bytes(step: Callable[[], object]) -> int:
    """From the profiler's record of every allocation and release."""
    with _silent_stderr(), profile(profile_memory=True) as profiler:
        step()
    results = profiler.kineto_results
    events = [e for e in results.events() if e.name() == "[memory]"] if results else []
    held_bytes = top_bytes = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held_bytes += event.nbytes()
        top_bytes = max(top_bytes, held_bytes)
    return top_bytes


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """torch's profiler announces its start and end there, whatever its log level."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def out_of_memory_named(planned_bytes: int, free_bytes: int, what: str) -> Iterator[None]:
    """Turn the device's out-of-memory into one line with the plan's number beside the device's."""
    try:
        yield
    except RuntimeError as error:
        refusal = isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
        if not refusal:
            raise
        raise Unsupported(
            f"{what}: planned {format_bytes(planned_bytes)} ({planned_bytes:,} B), the device had "
            f"{format_bytes(free_bytes)} free and ran out; use a smaller --batch or --context"
        ) from error
