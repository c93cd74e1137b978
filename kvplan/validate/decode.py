"""Measure decode at shapes that the prediction has not seen.

The forms of one library compete: each is calibrated on its own probes, and each held-out shape is run by the form that
its calibration says is fastest there, which is how an engine's dispatch table is made. Probes are timed once more at
the end; if they moved, so did the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from kvplan.decode_kernel import DecodeShape
from kvplan.validate.bench import MIN_SAMPLES, Stopwatch, Timing
from kvplan.validate.calibrate import probe_shapes
from kvplan.validate.kernels import Backend, Problem
from kvplan.validate.machine import DeviceProbes, Machine
from kvplan.validate.packing import Record
from kvplan.validate.pool import CachePool
from kvplan.validate.predict import Predictor, device_of
from kvplan.validate.reference import latent_attention
from kvplan.validate.result import BF16_BOUND, DecodeRow, NumericCheck

SCALE = 192**-0.5
"""1 / sqrt(nope + rope) of DeepSeek's heads."""
CPU_GRID = [
    (1, 16, 2048), (1, 128, 2048), (4, 16, 4096), (2, 128, 4096), (1, 64, 8192), (8, 16, 2048), (4, 128, 2048),
    (1, 32, 8192), (2, 64, 4096), (1, 16, 16384), (1, 128, 8192), (4, 32, 4096), (8, 64, 2048), (4, 16, 8192),
    (2, 128, 8192), (1, 64, 16384), (8, 32, 4096), (16, 16, 4096), (8, 128, 4096), (1, 16, 32768),
]  # fmt: skip
CUDA_GRID = [
    (128, 16, 8192), (128, 128, 8192), (1, 16, 8192), (1, 128, 32768), (32, 16, 4096), (32, 128, 4096),
    (128, 64, 4096), (64, 32, 8192), (8, 16, 32768), (8, 128, 16384), (64, 16, 2048), (64, 128, 2048), (16, 64, 16384),
    (256, 16, 4096), (128, 128, 4096), (4, 64, 32768), (256, 32, 2048), (38, 128, 8192), (1, 64, 4096), (16, 16, 65536),
]  # fmt: skip
"""(batch, heads, context), the most telling first: a short run gets no further than its time."""


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything that one KV dtype and layout is measured with."""

    machine: Machine
    watch: Stopwatch
    probes: DeviceProbes
    pool: CachePool
    block_size: int | None
    timing_s: float

    @property
    def kv_dtype(self) -> str:
        """Of the pool's records."""
        return self.pool.record.kv_dtype

    def problem(self, shape: DecodeShape) -> Problem:
        """The shape on the pool's first cache."""
        return self._problems(shape, 1)[0]

    def fits(self, shape: DecodeShape) -> bool:
        """Whether the pool holds it."""
        return shape.batch * shape.context_tokens <= len(self.pool.slots)

    def time(self, backend: Backend, shape: DecodeShape) -> Timing:
        """Median over caches in rotation."""
        problems = self._problems(shape, self.pool.distinct(shape, self.machine))
        return self.watch.time([backend.prepare(p) for p in problems], self.timing_s)

    def _problems(self, shape: DecodeShape, count: int) -> list[Problem]:
        size = (shape.batch, shape.query_tokens, shape.num_heads, shape.latent_dim + shape.rope_dim)
        query = torch.randn(size, device=self.machine.device).to(torch.bfloat16)
        caches = self.pool.caches(shape, self.block_size, count)
        return [Problem(query=query, cache=c, softmax_scale=SCALE, latent_dim=shape.latent_dim) for c in caches]

    def row(
        self, backend: Backend, shape: DecodeShape, timing: Timing, predictor: Predictor, *, held_out: bool
    ) -> DecodeRow:
        """Measured beside predicted."""
        return DecodeRow(
            shape={
                "batch": shape.batch,
                "num_heads": shape.num_heads,
                "context_tokens": shape.context_tokens,
                "query_tokens": shape.query_tokens,
                "kv_dtype": self.kv_dtype,
                "layout": f"blocks of {self.block_size}" if self.block_size else "contiguous",
            },
            kernel=backend.name,
            measured_s=timing.median_s,
            spread=timing.spread,
            predicted_s=predictor.predict(shape),
            bytes_per_s=shape.bytes / timing.median_s,
            flops_per_s=shape.flops / timing.median_s,
            held_out=held_out,
            samples_s=timing.samples_s,
        )


@dataclass(frozen=True, slots=True)
class Contestant:
    """One form with the probes that calibrated it."""

    backend: Backend
    predictor: Predictor
    timings: Sequence[tuple[DecodeShape, Timing]]


def grid(device: str, record: Record) -> list[DecodeShape]:
    """The held-out shapes of a device."""
    return [_shape(record, b, h, s) for b, h, s in (CUDA_GRID if device == "cuda" else CPU_GRID)]


def _shape(record: Record, batch: int, num_heads: int, context_tokens: int) -> DecodeShape:
    """At the latent of the record."""
    latent, rope = record.tensors
    return DecodeShape(
        batch=batch,
        num_heads=num_heads,
        context_tokens=context_tokens,
        latent_dim=latent.dim,
        rope_dim=rope.dim,
        kv_bytes_per_token=record.planned_bytes,
    )


def probes_of(machine: Machine, probes: DeviceProbes, record: Record) -> list[DecodeShape]:
    """The shapes that calibrate a kernel, at the record's own bytes."""
    device = device_of(machine, probes.read_bytes_per_s, probes.gemm_flops_per_s)
    return [_shape(record, s.batch, s.num_heads, s.context_tokens) for s in probe_shapes(device)]


def calibrated(lab: Lab, backend: Backend) -> Contestant:
    """Time the probes of one form and fit the model to them."""
    found = [(s, lab.time(backend, s)) for s in probes_of(lab.machine, lab.probes, lab.pool.record)]
    seconds = [(shape, timing.median_s) for shape, timing in found]
    return Contestant(backend, Predictor.fitted(lab.machine, lab.probes, seconds), found)


def probe_rows(lab: Lab, contestants: Sequence[Contestant]) -> Iterator[DecodeRow]:
    """The probes themselves, without errors."""
    for c in contestants:
        for shape, timing in c.timings:
            yield lab.row(c.backend, shape, timing, c.predictor, held_out=False)


def held_out_row(lab: Lab, contestants: Sequence[Contestant], shape: DecodeShape) -> DecodeRow:
    """Run the form that is predicted to be fastest."""
    best = min(contestants, key=lambda c: c.predictor.probe_s(shape))
    return lab.row(best.backend, shape, lab.time(best.backend, shape), best.predictor, held_out=True)


def drift(lab: Lab, contestant: Contestant) -> float:
    """The median relative change of the probes since the start: one of them may jump, the machine moves all."""
    return median(abs(lab.time(contestant.backend, s).median_s / t.median_s - 1) for s, t in contestant.timings)


def cost_s(lab: Lab, contestants: Sequence[Contestant], shape: DecodeShape) -> float:
    """About how long it takes to time a shape."""
    once_s = min(c.predictor.probe_s(shape) for c in contestants)
    return max(lab.timing_s, (MIN_SAMPLES + 1) * once_s)


def kernel_check(lab: Lab, backend: Backend, num_heads: int) -> NumericCheck | str:
    """A small problem against float64 on the dequantised cache, as a share of the largest output; or the backend's
    reason not to run it."""
    shape = _shape(lab.pool.record, 2, num_heads, 200)
    problem = lab.problem(shape)
    refusal = backend.refusal(problem)
    if refusal:
        return f"{backend.name}, {lab.kv_dtype}, {num_heads} heads: {refusal}"
    truth, _ = latent_attention(problem.query, problem.cache.unpack(), problem.cache.lengths, SCALE, shape.latent_dim)
    error = (backend.prepare(problem)().to(torch.float64) - truth).abs().max() / truth.abs().max()
    name = f"kernel-{backend.name}-{lab.kv_dtype}-h{num_heads}"
    return NumericCheck(name, "decode kernel against float64", float(error), BF16_BOUND)
