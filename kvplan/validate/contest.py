"""Measure decode at shapes that the prediction has not seen.

The forms of one library compete: each is calibrated on its own probes, and each held-out shape is run by the form that
its calibration says is fastest there, which is how an engine's dispatch table is made. Probes are timed once more at
the end; if they moved, so did the machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from statistics import median

from kvplan.decode_kernel import DecodeShape
from kvplan.validate.bench import MIN_SAMPLES, Timing
from kvplan.validate.kernels import Backend, library
from kvplan.validate.lab import Lab
from kvplan.validate.predict import Predictor
from kvplan.validate.result import DecodeRow, NumericCheck

CHECKED_HEADS = 16, 128
MIN_HELD_OUT = 4
"""Shapes that are measured even where time has run out: errors are all that a run is for."""
FAILURES = (RuntimeError, ImportError, OSError, subprocess.SubprocessError)
"""What foreign kernels raise where they cannot be built, launched or captured here."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One form with the probes that calibrated it."""

    backend: Backend
    predictor: Predictor
    timings: Sequence[tuple[DecodeShape, Timing]]


def calibrated(lab: Lab, backend: Backend) -> Contestant:
    """Time the probes of one form and fit the model to them."""
    found = [(shape, lab.time(backend, shape)) for shape in lab.probe_shapes]
    seconds = [(shape, timing.median_s) for shape, timing in found]
    return Contestant(backend, Predictor.fitted(lab.machine, lab.probes, seconds), found)


def drift(lab: Lab, contestant: Contestant) -> float:
    """The median relative change of the probes since the start: one of them may jump, the machine moves all."""
    return median(abs(lab.time(contestant.backend, s).median_s / t.median_s - 1) for s, t in contestant.timings)


def cost_s(lab: Lab, contestants: Sequence[Contestant], shape: DecodeShape) -> float:
    """About how long it takes to time a shape."""
    return max(lab.timing_s, (MIN_SAMPLES + 1) * min(c.predictor.probe_s(shape) for c in contestants))


def fastest(contestants: Sequence[Contestant], shape: DecodeShape) -> Contestant:
    """The form that is predicted to be fastest at a shape."""
    return min(contestants, key=lambda c: c.predictor.probe_s(shape))


@dataclass(slots=True)
class Contest:
    """All backends in one lab. Fills `numerics`, `rows`, `drifts` (by kernel) and `notes` as it goes."""

    lab: Lab
    numerics: list[NumericCheck] = field(default_factory=list)
    rows: list[DecodeRow] = field(default_factory=list)
    drifts: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self, backends: Sequence[Backend], clock_s: Callable[[], float], end_s: float) -> Iterator[str]:
        """One library after another, until `clock_s()` passes `end_s`; yields what was done."""
        right = [b for b in backends if self._attempt(b, self._is_right)]
        groups = [list(group) for _, group in groupby(right, library)]
        for number, group in enumerate(groups):
            now_s = clock_s()
            yield from self._library(group, clock_s, now_s + (end_s - now_s) / (len(groups) - number))

    def _attempt(self, backend: Backend, task: Callable[[Backend], object]) -> object:
        """The task's result; None, with a note, where a foreign kernel fails."""
        try:
            return task(backend)
        except FAILURES as error:
            self.notes.append(f"{backend.name}, {self.lab.record.kv_dtype}: {' '.join(str(error).split())[:200]}")
            return None

    def _is_right(self, backend: Backend) -> bool:
        """Only kernels that compute the right thing are timed; others are shown as failed, or as refusing."""
        checks = [self.lab.check(backend, heads) for heads in CHECKED_HEADS]
        self.notes += [check for check in checks if isinstance(check, str)]
        self.numerics += [check for check in checks if not isinstance(check, str)]
        return all(not isinstance(check, str) and check.ok for check in checks)

    def _library(self, group: Sequence[Backend], clock_s: Callable[[], float], end_s: float) -> Iterator[str]:
        """Calibrate every form, run each held-out shape by the fastest, repeat the probes of those that ran."""
        began_s = clock_s()
        contestants: list[Contestant] = []
        for backend in group:
            found = self._attempt(backend, lambda b: calibrated(self.lab, b))
            contestants += [found] if isinstance(found, Contestant) else []
            yield f"{backend.name} probes"
        for contestant in contestants:
            self.rows += self._probe_rows(contestant)
        if contestants:
            yield from self._held_out(contestants, clock_s, end_s - (clock_s() - began_s))
            yield from self._repeat(contestants)

    def _probe_rows(self, contestant: Contestant) -> Iterator[DecodeRow]:
        for shape, timing in contestant.timings:
            yield self.lab.row(contestant.backend, shape, timing, contestant.predictor, held_out=False)

    def _held_out(self, contestants: Sequence[Contestant], clock_s: Callable[[], float], end_s: float) -> Iterator[str]:
        for number, shape in enumerate(self.lab.held_out_shapes):
            if number >= MIN_HELD_OUT and clock_s() + cost_s(self.lab, contestants, shape) > end_s:
                continue
            best = fastest(contestants, shape)
            row = self._attempt(best.backend, partial(self._held_out_row, best, shape))
            self.rows += [row] if isinstance(row, DecodeRow) else []
            yield f"{best.backend.name} {shape.batch} x {shape.num_heads} x {shape.context_tokens}"

    def _held_out_row(self, form: Contestant, shape: DecodeShape, backend: Backend) -> DecodeRow:
        return self.lab.row(backend, shape, self.lab.time(backend, shape), form.predictor, held_out=True)

    def _repeat(self, contestants: Sequence[Contestant]) -> Iterator[str]:
        used = {row.kernel for row in self.rows if row.held_out}
        for contestant in contestants:
            if contestant.backend.name in used:
                self.drifts[contestant.backend.name] = drift(self.lab, contestant)
                yield f"{contestant.backend.name} probes again"
