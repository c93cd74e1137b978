"""One run of `kvplan validate`: numbers, memory, speed, within a time that is known before it starts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

from kvplan.errors import BadInput
from kvplan.model import ModelSpec
from kvplan.validate.bench import one_thread, stopwatch
from kvplan.validate.contest import Contest
from kvplan.validate.effort import EFFORTS, Effort
from kvplan.validate.kernels import Backend, backends, library
from kvplan.validate.kinds import Scene, compare_kinds
from kvplan.validate.lab import Lab
from kvplan.validate.layers import latent_attention_of, latent_layers, left_out
from kvplan.validate.machine import DeviceProbes, Machine, find_machine, probe_device
from kvplan.validate.memory import BLOCK_TOKENS, affordable, check_memory, plan_cases
from kvplan.validate.packing import Record
from kvplan.validate.paged import Extent
from kvplan.validate.pressure import MAX_DRIFT, Load, Pressure
from kvplan.validate.result import Comparison, DecodeRow, MemoryCheck, NumericCheck, Validation
from kvplan.validate.scenarios import SCENARIOS, whole_block

_SCENES = {"cpu": Extent(1, 1024), "cuda": Extent(8, 4096)}
"""Batch and context at which kinds of attention are set side by side."""


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
        """`device`: auto, cuda or cpu. `effort`: as `effort.effort()` names it. Batch and context are those of the
        memory checks; where neither is given, what the effort says, as far as the device affords it."""
        notes = left_out(spec)
        spec = latent_layers(spec)
        machine = find_machine(device)
        chosen = EFFORTS[machine.device, effort]
        extent = Extent(batch or chosen.extent.batch, context_tokens or chosen.extent.capacity_tokens)
        if extent.capacity_tokens <= BLOCK_TOKENS:
            raise BadInput(f"--context: {extent.capacity_tokens} is too short to grow; give more than {BLOCK_TOKENS}")
        asked = batch is not None or context_tokens is not None
        extent = extent if asked else affordable(spec, machine, extent)
        return cls(spec, machine, chosen, extent, notes=notes)

    @property
    def expected_steps(self) -> int:
        """About how many steps there will be; fewer where time runs out."""
        return 40 + 30 * len(self.effort.kv_dtypes)

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
        end_s = self.effort.total_s - 2 * self.effort.kinds_s - (self._elapsed_s() - began_s)
        for number, kv_dtype in enumerate(self.effort.kv_dtypes):
            share_s = (end_s - self._elapsed_s()) / (len(self.effort.kv_dtypes) - number)
            yield from self._decode(probes, kv_dtype, self._elapsed_s() + share_s)
        yield from self._kinds()
        repeated = probe_device(self.machine, self.effort.probing_s)
        self._judge_drift("device probes", probes.drift(repeated))
        self.probes |= {"device": probes.as_dict(), "device_repeated": repeated.as_dict()}
        self.probes["details_after"] = find_machine(self.machine.device).details
        yield "device probes again"

    def _elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def _decode(self, probes: DeviceProbes, kv_dtype: str, end_s: float) -> Iterator[str]:
        """Every kernel in one KV dtype, until `end_s` after the start."""
        record = Record(latent_attention_of(self.spec).tensors(), kv_dtype)
        block_size = BLOCK_TOKENS if self.machine.device == "cuda" else None
        lab = Lab.equipped(self.machine, probes, record, block_size=block_size, timing_s=self.effort.timing_s)
        contest = Contest(lab)
        yield from contest.run(able(self.machine.device), self._elapsed_s, end_s)
        self.numerics += contest.numerics
        self.rows += contest.rows
        self.notes += contest.notes
        for kernel, drift in contest.drifts.items():
            self._judge_drift(f"{kernel} probes in {kv_dtype}", drift)

    def _judge_drift(self, what: str, drift: float) -> None:
        self.probes[f"drift of {what}"] = drift
        if drift > MAX_DRIFT:
            self.reasons.append(f"{what} moved by {drift:.0%} between start and end (at most {MAX_DRIFT:.0%})")

    def _kinds(self) -> Iterator[str]:
        held_out = [row for row in self.rows if row.held_out]
        if not held_out:
            self.notes.append("no kernel could be timed")
        if not held_out or self._elapsed_s() > self.effort.total_s:
            return
        kernel = next(b for b in backends() if b.name == held_out[-1].kernel)
        extent = affordable(self.spec, self.machine, _SCENES[self.machine.device])
        scene = Scene(self.spec, extent.batch, extent.capacity_tokens, self.machine.device)
        self.comparisons += compare_kinds(scene, kernel, stopwatch(self.machine.device), self.effort.kinds_s)
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


def able(device: str) -> list[Backend]:
    """Backends that can run here. On a GPU, torch's own forms stand in only where there is no kernel for MLA; on a CPU,
    a kernel that merely interprets is not timed."""
    found = [b for b in backends() if b.missing() is None]
    kernels = [b for b in found if library(b) != "torch"]
    return kernels if device == "cuda" and kernels else [b for b in found if library(b) == "torch"]
