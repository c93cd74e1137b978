"""Everything that decode is measured with in one KV dtype and layout, and the shapes that are measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from kvplan.decode_kernel import DecodeShape
from kvplan.validate.bench import Stopwatch, Timing, stopwatch
from kvplan.validate.calibrate import probe_shapes
from kvplan.validate.gauge import out_of_memory_named
from kvplan.validate.kernels import Backend, Problem
from kvplan.validate.machine import DeviceProbes, Machine
from kvplan.validate.packing import Record
from kvplan.validate.pool import CachePool, pool_tokens
from kvplan.validate.predict import Predictor, device_of
from kvplan.validate.reference import latent_attention
from kvplan.validate.result import BF16_BOUND, DecodeRow, NumericCheck

SOFTMAX_SCALE = 192**-0.5
"""1 / sqrt(nope + rope) of DeepSeek's heads."""
GRIDS = {
    "cpu": (
        (1, 16, 2048), (1, 128, 2048), (4, 16, 4096), (2, 128, 4096), (1, 64, 8192), (8, 16, 2048), (4, 128, 2048),
        (1, 32, 8192), (2, 64, 4096), (1, 16, 16384), (1, 128, 8192), (4, 32, 4096), (8, 64, 2048), (4, 16, 8192),
        (2, 128, 8192), (1, 64, 16384), (8, 32, 4096), (16, 16, 4096), (8, 128, 4096), (1, 16, 32768),
    ),
    "cuda": (
        (128, 16, 8192), (128, 128, 8192), (1, 16, 8192), (1, 128, 32768), (32, 16, 4096), (32, 128, 4096),
        (128, 64, 4096), (64, 32, 8192), (8, 16, 32768), (8, 128, 16384), (64, 16, 2048), (64, 128, 2048),
        (16, 64, 16384), (256, 16, 4096), (128, 128, 4096), (4, 64, 32768), (256, 32, 2048), (38, 128, 8192),
        (1, 64, 4096), (16, 16, 65536),
    ),
}  # fmt: skip
"""Held-out (batch, heads, context), the most telling first: a short run gets no further than its time."""


def shape_of(record: Record, batch: int, num_heads: int, context_tokens: int) -> DecodeShape:
    """A step of one query token at the latent and the bytes of a record."""
    latent, rope = record.tensors
    return DecodeShape(
        batch=batch,
        num_heads=num_heads,
        context_tokens=context_tokens,
        latent_dim=latent.dim,
        rope_dim=rope.dim,
        kv_bytes_per_token=record.planned_bytes,
    )


def tokens_of(shape: DecodeShape) -> int:
    """Cached tokens of all sessions."""
    return shape.batch * shape.context_tokens


def grid(device: str, record: Record) -> list[DecodeShape]:
    """The held-out shapes of a device."""
    return [shape_of(record, b, h, s) for b, h, s in GRIDS[device]]


def probes_of(machine: Machine, probes: DeviceProbes, record: Record) -> list[DecodeShape]:
    """The shapes that calibrate a kernel, at the latent and the bytes of the record."""
    device = device_of(machine, probes.read_bytes_per_s, probes.gemm_flops_per_s)
    return [shape_of(record, s.batch, s.num_heads, s.context_tokens) for s in probe_shapes(device)]


def within(shapes: Iterable[DecodeShape], tokens: int) -> list[DecodeShape]:
    """The shapes with at most `tokens` cached tokens: the batch is halved, then the context; each shape once."""
    found = []
    for shape in shapes:
        while tokens_of(shape) > tokens:
            shape = (  # noqa: PLW2901
                replace(shape, batch=shape.batch // 2)
                if shape.batch > 1
                else replace(shape, context_tokens=shape.context_tokens // 2)
            )
        found.append(shape)
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Lab:
    """A device, its clock, and a pool of caches. `block_size` None: contiguous caches."""

    machine: Machine
    watch: Stopwatch
    probes: DeviceProbes
    pool: CachePool
    block_size: int | None
    timing_s: float

    @classmethod
    def equipped(
        cls, machine: Machine, probes: DeviceProbes, record: Record, *, block_size: int | None, timing_s: float
    ) -> Lab:
        """With a pool that holds the largest shape, where the device affords it."""
        wanted = [*grid(machine.device, record), *probes_of(machine, probes, record)]
        tokens = pool_tokens(wanted, record, machine)
        with out_of_memory_named(tokens * record.planned_bytes, machine.free_bytes, "decode"):
            pool = CachePool.filled(record, tokens, machine.device)
        return cls(machine, stopwatch(machine.device), probes, pool, block_size, timing_s)

    @property
    def record(self) -> Record:
        """Of the pool."""
        return self.pool.record

    @property
    def probe_shapes(self) -> list[DecodeShape]:
        """As far as the pool holds them, else smaller ones."""
        return within(probes_of(self.machine, self.probes, self.record), len(self.pool.slots))

    @property
    def held_out_shapes(self) -> list[DecodeShape]:
        """The grid, without what the pool cannot hold and without the probes."""
        known = set(self.probe_shapes)
        found = grid(self.machine.device, self.record)
        return [s for s in found if tokens_of(s) <= len(self.pool.slots) and s not in known]

    def problems(self, shape: DecodeShape, count: int) -> list[Problem]:
        """The same query against `count` different caches."""
        size = (shape.batch, shape.query_tokens, shape.num_heads, shape.latent_dim + shape.rope_dim)
        query = torch.randn(size, device=self.machine.device).to(torch.bfloat16)
        caches = self.pool.caches(shape, self.block_size, count)
        return [Problem(query=query, cache=c, softmax_scale=SOFTMAX_SCALE, latent_dim=shape.latent_dim) for c in caches]

    def time(self, backend: Backend, shape: DecodeShape) -> Timing:
        """Median over caches in rotation."""
        problems = self.problems(shape, self.pool.distinct(shape, self.machine))
        return self.watch.time([backend.prepare(p) for p in problems], self.timing_s)

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
                "kv_dtype": self.record.kv_dtype,
                "layout": f"blocks of {self.block_size}" if self.block_size else "contiguous",
            },
            kernel=backend.name,
            measured_s=timing.median_s,
            wall_s=timing.wall_s,
            spread=timing.spread,
            predicted_s=predictor.predict(shape),
            bytes_per_s=shape.bytes / timing.median_s,
            flops_per_s=shape.flops / timing.median_s,
            held_out=held_out,
            samples_s=timing.samples_s,
        )

    def check(self, backend: Backend, num_heads: int) -> NumericCheck | str:
        """A small problem against float64 on the dequantised cache, as a share of the largest output; or the backend's
        reason not to run it."""
        [problem] = self.problems(shape_of(self.record, 2, num_heads, 200), 1)
        refusal = backend.refusal(problem)
        if refusal:
            return f"{backend.name}, {self.record.kv_dtype}, {num_heads} heads: {refusal}"
        cache = problem.cache
        truth, _ = latent_attention(
            problem.query, cache.unpack(), cache.lengths, problem.softmax_scale, problem.latent_dim
        )
        error = (backend.prepare(problem)().to(torch.float64) - truth).abs().max() / truth.abs().max()
        name = f"kernel-{backend.name}-{self.record.kv_dtype}-h{num_heads}"
        return NumericCheck(name, "decode kernel against float64", float(error), BF16_BOUND)
