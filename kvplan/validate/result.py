"""What a run of `validate` found, and its file."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from kvplan.errors import BadInput
from kvplan.files import read_bytes, replace_file
from kvplan.units import MIB

Level = Literal["datasheet", "microbench", "probe"]
LEVELS: tuple[Level, ...] = ("datasheet", "microbench", "probe")
MAX_MEDIAN_ERROR, MAX_ERROR, MIN_SHARE_WITHIN = 0.08, 0.20, 0.90
BF16_BOUND = 2e-2
"""Largest error of a bf16 kernel as a share of the largest output: 8 bits of mantissa, a few roundings."""
_MOST_FILE_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class NumericCheck:
    """One error beside its bound. NaN fails."""

    id: str
    what: str
    error: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether the bound holds."""
        return self.error <= self.bound


@dataclass(frozen=True, slots=True)
class MemoryCheck:
    """One measured size beside the planned one. `tolerance_bytes`: how far they may lie apart."""

    id: str
    quantity: str
    predicted_bytes: int
    measured_bytes: int
    tolerance_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether they agree."""
        return abs(self.measured_bytes - self.predicted_bytes) <= self.tolerance_bytes


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One measured shape.

    `measured_s` is the median of what the stopwatch samples (CPU time of one thread, or GPU time), `wall_s` that of the
    wall clock. `predicted_s` has every level; an error is signed, predicted / measured - 1, and stands only on held-out
    shapes: on a probe it would flatter.
    """

    shape: dict[str, int | str]
    kernel: str
    measured_s: float
    wall_s: float
    spread: float
    predicted_s: dict[Level, float | None]
    bytes_per_s: float
    flops_per_s: float
    held_out: bool
    samples_s: tuple[float, ...] = ()

    @property
    def error(self) -> dict[Level, float | None]:
        """Signed relative error of each level."""
        levels = self.predicted_s.items()
        return {level: s / self.measured_s - 1 if s is not None and self.held_out else None for level, s in levels}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of one decode step of one layer under one kind of attention, at the same heads, batch and context."""

    kind: str
    batch: int
    context_tokens: int
    num_heads: int
    cache_bytes: int
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A whole run. `reasons`: why the timings are invalid; empty where they are valid. Numbers and bytes do not
    depend on what else the machine does."""

    device: str
    model: str
    machine: dict[str, Any]
    probes: dict[str, Any]
    numerics: tuple[NumericCheck, ...]
    memory: tuple[MemoryCheck, ...]
    decode: tuple[DecodeRow, ...]
    comparisons: tuple[Comparison, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def valid(self) -> bool:
        """Whether the timings can be trusted."""
        return not self.reasons

    def errors(self, level: Level) -> list[float]:
        """Absolute errors of one level over the held-out shapes."""
        found = (row.error[level] for row in self.decode)
        return [abs(e) for e in found if e is not None]

    def summary(self, level: Level) -> dict[str, float | None]:
        """Median error and the shares within 10 and 20 %; None where the level predicts nothing."""
        errors = self.errors(level)
        within = {f"within_{p}": sum(e <= p / 100 for e in errors) / len(errors) if errors else None for p in (10, 20)}
        return {"median_error": median(errors) if errors else None, **within}

    @property
    def prediction_holds(self) -> bool | None:
        """Whether the probe level meets its promise: median error at most 8 %, nine in ten within 20 %. None where
        there is nothing to judge: no held-out shape, or an invalid run."""
        errors = self.errors("probe")
        if not errors or not self.valid:
            return None
        within = sum(e <= MAX_ERROR for e in errors) / len(errors)
        return median(errors) <= MAX_MEDIAN_ERROR and within >= MIN_SHARE_WITHIN

    @property
    def ok(self) -> bool:
        """Whether everything that could be judged holds."""
        return (
            all(c.ok for c in self.numerics) and all(c.ok for c in self.memory) and self.prediction_holds is not False
        )

    def payload(self) -> dict[str, Any]:
        """The JSON of the contract, and more keys beside it."""
        return {
            "command": "validate",
            "device": self.device,
            "model": self.model,
            "machine": self.machine,
            "probes": self.probes,
            "numerics": [_finite(asdict(c)) | {"ok": c.ok} for c in self.numerics],
            "memory": [asdict(c) | {"ok": c.ok} for c in self.memory],
            "decode": [asdict(row) | {"error": row.error} for row in self.decode],
            "comparisons": [asdict(c) for c in self.comparisons],
            "summary": {level: self.summary(level) for level in LEVELS},
            "prediction_holds": self.prediction_holds,
            "valid": self.valid,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "ok": self.ok,
        }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def save(result: Validation, path: Path) -> None:
    """Write the payload; the file is there whole or not at all."""
    try:
        replace_file(path, json.dumps(result.payload(), indent=1).encode())
    except OSError as error:
        raise BadInput(f"--save {path}: cannot be written: {error.strerror}") from error


def load(path: Path) -> dict[str, Any]:
    """The payload of an earlier run; `BadInput` for a file that is none."""
    try:
        payload = json.loads(read_bytes(path, _MOST_FILE_BYTES))
    except ValueError as error:
        raise BadInput(f"--compare {path}: is not JSON: {error}") from error
    if not isinstance(payload, dict) or payload.get("command") != "validate":
        raise BadInput(f"--compare {path}: is not a file that `kvplan validate --save` wrote")
    return payload
