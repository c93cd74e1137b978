"""One run of `kvplan validate`: numbers, memory, speed, within a time that is known before it starts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby

from kvplan.errors import BadInput
from kvplan.model import ModelSpec
from kvplan.units import GIB, MIB
from kvplan.validate import decode
from kvplan.validate.bench import one_thread, stopwatch
from kvplan.validate.decode import Contestant, Lab
from kvplan.validate.gauge import out_of_memory_named
from kvplan.validate.kernels import Backend, backends, library
from kvplan.validate.kinds import Scene, compare_kinds
from kvplan.validate.machine import DeviceProbes, Machine, find_machine, probe_device
from kvplan.validate.memory import BLOCK_TOKENS, check_memory, latent_attention_of, plan_cases
from kvplan.validate.packing import Record
from kvplan.validate.paged import Extent
from kvplan.validate.pool import CachePool, pool_tokens
from kvplan.validate.pressure import MAX_DRIFT, Load, Pressure
from kvplan.validate.ranks import check_ranks, process_group
from kvplan.validate.result import Comparison, DecodeRow, MemoryCheck, NumericCheck, Validation
from kvplan.validate.scenarios import SCENARIOS, whole_block

CHECKED_HEADS = 16, 128


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of everything on one kind of device. `total_s` is kept by measuring fewer held-out shapes; it leaves
    what loading torch and writing the answer take of the 20, 90 and 300 s that are promised."""

    total_s: float
    probing_s: float
    timing_s: float
    kinds_s: float
    memory_bytes: int
    extent: Extent
    kv_dtypes: tuple[str, ...]


_CPU, _GPU = Extent(2, 1026), Extent(8, 8194)
"""Two tokens past a whole number of blocks, so that the last decode steps open a new one."""
EFFORTS = {
    ("cpu", "quick"): Effort(17.5, 0.6, 0.08, 0.3, 64 * MIB, Extent(1, 1026), ("bf16",)),
    ("cpu", "default"): Effort(85, 5.0, 0.6, 4.0, 256 * MIB, _CPU, ("bf16",)),
    ("cpu", "full"): Effort(290, 15.0, 2.5, 15.0, GIB, _CPU, ("bf16",)),
    ("cuda", "quick"): Effort(17, 1.0, 0.05, 0.5, GIB, Extent(4, 4098), ("bf16",)),
    ("cuda", "default"): Effort(80, 4.0, 0.2, 2.0, 4 * GIB, _GPU, ("bf16", "fp8")),
    ("cuda", "full"): Effort(280, 15.0, 0.5, 5.0, 8 * GIB, _GPU, ("bf16", "fp8", "fp8_ds_mla")),
}


def effort(quick: bool, full: bool) -> str:
    """The name of an effort from two flags."""
    if quick and full:
        raise BadInput("--quick and --full: give one of them")
    return "quick" if quick else "full" if full else "default"


@dataclass(slots=True)
class Session:
    """A run in steps, so that a person can watch and Ctrl-C leaves nothing half done."""

    spec: ModelSpec
    machine: Machine
    effort: Effort
    extent: Extent
    numerics: list[NumericCheck] = field(default_factory=list)
    memory: list[MemoryCheck] = field(default_factory=list)
    rows: list[DecodeRow] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    probes: dict[str, object] = field(default_factory=dict)
    started_s: float = field(default_factory=time.monotonic)

    @classmethod
    def plan(
        cls, spec: ModelSpec, device: str, effort: str, batch: int | None = None, context_tokens: int | None = None
    ) -> Session:
        """`device`: auto, cuda or cpu. `effort`: as `effort()` names it. Batch and context are those of the memory
        checks; None leaves them to the effort."""
        machine = find_machine(device)
        chosen = EFFORTS[machine.device, effort]
        extent = Extent(batch or chosen.extent.batch, context_tokens or chosen.extent.capacity_tokens)
        if extent.capacity_tokens <= BLOCK_TOKENS:
            raise BadInput(
                f"--context: {extent.capacity_tokens} is too short to grow; give more than {BLOCK_TOKENS} tokens"
            )
        latent_attention_of(spec)
        return cls(spec, machine, chosen, extent)

    @property
    def expected_steps(self) -> int:
        """About how many steps there will be; fewer where time runs out."""
        return len(SCENARIOS) + len(self.effort.kv_dtypes) * (len(decode.CPU_GRID) + 4) + 20

    def steps(self) -> Iterator[str]:
        """Do the work; yields the name of what was done."""
        with one_thread() if self.machine.device == "cpu" else nullcontext():
            yield from self._numbers()
            yield from self._bytes()
            before = Load.now()
            yield from self._speed()
            pressure = Pressure.between(before, Load.now())
        self.probes["pressure"] = {"waiting": pressure.waiting, "stolen": pressure.stolen}
        self.reasons += pressure.complaints() if self.machine.device == "cpu" else ()

    def _numbers(self) -> Iterator[str]:
        for scenario in (*SCENARIOS, whole_block(latent_attention_of(self.spec))):
            self.numerics.append(NumericCheck(scenario.id, scenario.what, scenario.run(), scenario.bound))
            yield scenario.id

    def _bytes(self) -> Iterator[str]:
        cases = plan_cases(self.spec, self.machine, self.extent, self.effort.memory_bytes)
        for number, case in enumerate(cases):
            if self._elapsed_s() > self.effort.total_s / 2:
                self.notes.append(f"no time was left to check the memory of {', '.join(c.id for c in cases[number:])}")
                return
            checks, numeric = check_memory(case, self.machine)
            self.memory += checks
            self.numerics.append(numeric)
            yield case.id

    def _speed(self) -> Iterator[str]:
        began_s = self._elapsed_s()
        probes = probe_device(self.machine, self.effort.probing_s)
        yield "device probes"
        last_s = self.effort.total_s - 2 * self.effort.kinds_s - (self._elapsed_s() - began_s)
        for number, kv_dtype in enumerate(self.effort.kv_dtypes):
            share_s = (last_s - self._elapsed_s()) / (len(self.effort.kv_dtypes) - number)
            yield from self._decode(probes, kv_dtype, self._elapsed_s() + share_s)
        yield from self._kinds()
        repeated = probe_device(self.machine, self.effort.probing_s)
        self._judge_drift("device probes", probes.drift(repeated))
        self.probes |= {"device": probes.as_dict(), "device_repeated": repeated.as_dict()}
        yield "device probes again"

    def _elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def _decode(self, probes: DeviceProbes, kv_dtype: str, end_s: float) -> Iterator[str]:
        """Every library's kernels in one KV dtype, until `end_s` after the start."""
        lab = self._lab(probes, kv_dtype)
        able = [b for b in _able(self.machine.device) if self._is_right(lab, b)]
        groups = [list(group) for _, group in groupby(able, library)]
        for number, group in enumerate(groups):
            share_s = (end_s - self._elapsed_s()) / (len(groups) - number)
            yield from self._contest(lab, group, self._elapsed_s() + share_s)

    def _lab(self, probes: DeviceProbes, kv_dtype: str) -> Lab:
        record = Record(latent_attention_of(self.spec).tensors(), kv_dtype)
        wanted = [*decode.grid(self.machine.device, record), *decode.probes_of(self.machine, probes, record)]
        tokens = pool_tokens(wanted, record, self.machine)
        with out_of_memory_named(tokens * record.planned_bytes, self.machine.free_bytes, "decode"):
            pool = CachePool.filled(record, tokens, self.machine.device)
        block_size = BLOCK_TOKENS if self.machine.device == "cuda" else None
        return Lab(self.machine, stopwatch(self.machine.device), probes, pool, block_size, self.effort.timing_s)

    def _is_right(self, lab: Lab, backend: Backend) -> bool:
        """Only kernels that compute the right thing are timed; the others are shown as failed, or as refusing."""
        checks = [decode.kernel_check(lab, backend, heads) for heads in CHECKED_HEADS]
        self.notes += [check for check in checks if isinstance(check, str)]
        self.numerics += [check for check in checks if not isinstance(check, str)]
        return all(not isinstance(check, str) and check.ok for check in checks)

    def _contest(self, lab: Lab, group: list[Backend], end_s: float) -> Iterator[str]:
        """Calibrate every form of one library, run each held-out shape by the fastest, repeat the probes."""
        began_s = self._elapsed_s()
        contestants: list[Contestant] = []
        for backend in group:
            contestants.append(decode.calibrated(lab, backend))
            yield f"{backend.name} probes"
        end_s -= self._elapsed_s() - began_s
        self.rows += decode.probe_rows(lab, contestants)
        seen = {(s.batch, s.num_heads, s.context_tokens) for s, _ in contestants[0].timings}
        for shape in decode.grid(self.machine.device, lab.pool.record):
            is_probe = (shape.batch, shape.num_heads, shape.context_tokens) in seen
            if is_probe or not lab.fits(shape) or self._elapsed_s() + decode.cost_s(lab, contestants, shape) > end_s:
                continue
            self.rows.append(decode.held_out_row(lab, contestants, shape))
            yield f"{library(group[0])} {shape.batch} x {shape.num_heads} x {shape.context_tokens}"
        used = {row.kernel for row in self.rows if row.held_out}
        for contestant in contestants:
            if contestant.backend.name in used:
                self._judge_drift(f"{contestant.backend.name} probes", decode.drift(lab, contestant))
                yield f"{contestant.backend.name} probes again"

    def _judge_drift(self, what: str, drift: float) -> None:
        self.probes[f"drift of {what}"] = drift
        if drift > MAX_DRIFT:
            self.reasons.append(f"{what} moved by {drift:.0%} between start and end (at most {MAX_DRIFT:.0%})")

    def _kinds(self) -> Iterator[str]:
        extent = Extent(1, 1024) if self.machine.device == "cpu" else Extent(8, 4096)
        held_out = [row for row in self.rows if row.held_out]
        if not held_out:
            self.notes.append("no time was left for held-out shapes; give --full, or a quieter machine")
            return
        best = next(b for b in backends() if b.name == held_out[-1].kernel)
        scene = Scene(self.spec, extent.batch, extent.capacity_tokens, self.machine.device)
        self.comparisons += compare_kinds(scene, best, stopwatch(self.machine.device), self.effort.kinds_s)
        yield "kinds of attention"

    def result(self) -> Validation:
        """What was found."""
        return Validation(
            device=self.machine.device,
            model=self.spec.name,
            machine=self.machine.as_dict(),
            probes=self.probes,
            numerics=tuple(self.numerics),
            memory=tuple(self.memory),
            decode=tuple(self.rows),
            comparisons=tuple(self.comparisons),
            reasons=tuple(self.reasons),
            notes=tuple(self.notes),
        )


@dataclass(slots=True)
class RankSession:
    """The checks of several ranks as a session; only rank 0 has a result."""

    spec: ModelSpec
    device: str
    expected_steps: int = 1
    found: Validation | None = None

    def steps(self) -> Iterator[str]:
        """Join the group, check, leave."""
        with process_group(self.device) as group:
            memory, numerics = check_ranks(self.spec, group)
            if group.rank == 0:
                machine = find_machine("cpu" if group.device == "cpu" else "cuda")
                self.found = Validation(
                    device=machine.device,
                    model=self.spec.name,
                    machine=machine.as_dict() | {"ranks": group.size},
                    probes={},
                    numerics=tuple(numerics),
                    memory=tuple(memory),
                    decode=(),
                )
            yield "ranks"

    def result(self) -> Validation | None:
        """What was found, on rank 0."""
        return self.found


def _able(device: str) -> list[Backend]:
    """Backends that can run here. On a GPU, torch's own forms stand in only where there is no kernel for MLA."""
    able = [b for b in backends() if b.missing() is None]
    kernels = [b for b in able if library(b) != "torch"]
    return kernels if device == "cuda" and kernels else [b for b in able if library(b) == "torch"]
