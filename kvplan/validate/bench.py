"""Timing that can be trusted, or says that it cannot.

CUDA: a graph of many launches that rotate over distinct caches, events around each replay, after seconds of warm-up.
CPU: one thread, its own CPU time (wall time includes whatever else the machine does), the same rotation. Every
measurement keeps its samples; the median is the result, the spread stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Protocol

import torch

Launch = Callable[[], object]
MIN_SAMPLES = 5
GRAPH_LAUNCHES = 20
CUDA_WARMUP_S = 0.2


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one launch, sample by sample. `wall_s`: median wall time, where it differs from what is sampled."""

    samples_s: tuple[float, ...]
    wall_s: float

    @property
    def median_s(self) -> float:
        """The result."""
        return median(self.samples_s)

    @property
    def spread(self) -> float:
        """From the first to the ninth decile, as a share of the median."""
        deciles = quantiles(self.samples_s, n=10, method="inclusive")
        return (deciles[-1] - deciles[0]) / self.median_s


class Stopwatch(Protocol):
    """Times launches in rotation for about `budget_s` seconds, and at least `MIN_SAMPLES` times."""

    def time(self, launches: Sequence[Launch], budget_s: float) -> Timing:
        """Time of one launch."""
        ...


@dataclass(frozen=True, slots=True)
class CpuStopwatch:
    """CPU time of the calling thread. Meaningful only inside `one_thread`."""

    def time(self, launches: Sequence[Launch], budget_s: float) -> Timing:
        """One sample per launch, after one launch of warm-up."""
        launches[-1]()
        samples: list[float] = []
        walls: list[float] = []
        end_s = time.perf_counter() + budget_s
        for launch in cycle(launches):
            wall_s, cpu_s = time.perf_counter(), time.thread_time()
            launch()
            samples.append(time.thread_time() - cpu_s)
            walls.append(time.perf_counter() - wall_s)
            if time.perf_counter() > end_s and len(samples) >= MIN_SAMPLES:
                break
        return Timing(tuple(samples), median(walls))


@contextmanager
def one_thread() -> Iterator[None]:
    """Pin torch to one thread, and give the threads back afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class CudaStopwatch:
    """Events around replays of a CUDA graph, so that neither Python nor the launch queue is measured."""

    def time(self, launches: Sequence[Launch], budget_s: float) -> Timing:
        """One sample per replay, divided by the launches in the graph."""
        count = max(GRAPH_LAUNCHES, len(launches))
        graph = self._capture(list(islice(cycle(launches), count)))
        self._replay_for(graph, CUDA_WARMUP_S)
        samples: list[float] = []
        end_s = time.perf_counter() + budget_s
        while time.perf_counter() < end_s or len(samples) < MIN_SAMPLES:
            samples.append(self._replay_s(graph) / count)
        return Timing(tuple(samples), median(samples))

    def _capture(self, launches: Sequence[Launch]) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for launch in launches[:3]:
                launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                launch()
        return graph

    def _replay_for(self, graph: torch.cuda.CUDAGraph, seconds: float) -> None:
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            graph.replay()
            torch.cuda.synchronize()

    def _replay_s(self, graph: torch.cuda.CUDAGraph) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def stopwatch(device: str) -> Stopwatch:
    """The one for `cpu` or `cuda`."""
    return CudaStopwatch() if device == "cuda" else CpuStopwatch()
