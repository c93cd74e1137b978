"""What else the machine is doing: is this run worth anything?

Linux says how long tasks waited for a CPU (/proc/pressure/cpu, "some") and how long a hypervisor ran somebody else
(/proc/stat, steal). Where neither can be read, only the repeated probes judge the run.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

MAX_WAITING = 0.10
MAX_STOLEN = 0.05
MAX_DRIFT = 0.10


@dataclass(frozen=True, slots=True)
class Load:
    """Running totals at one moment, seconds; None where the system does not tell."""

    clock_s: float
    waiting_s: float | None
    stolen_s: float | None

    @classmethod
    def now(cls, proc: Path = Path("/proc")) -> Load:
        """Read both totals."""
        return cls(time.monotonic(), _waiting_s(proc / "pressure/cpu"), _stolen_s(proc / "stat"))


def _waiting_s(path: Path) -> float | None:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=3685735`, in microseconds."""
    try:
        some = path.read_text().splitlines()[0]
    except OSError:
        return None
    return int(some.rpartition("total=")[2]) / 1e6


def _stolen_s(path: Path) -> float | None:
    """The eighth figure of the line `cpu`, in clock ticks."""
    try:
        ticks = path.read_text().split(maxsplit=9)[8]
    except OSError:
        return None
    return int(ticks) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shares of the time between two moments; None where unknown. `stolen` is a share of one CPU."""

    waiting: float | None
    stolen: float | None

    @classmethod
    def between(cls, before: Load, after: Load) -> Pressure:
        """From `before` to `after`."""
        elapsed_s = max(after.clock_s - before.clock_s, 1e-9)

        def share(first: float | None, last: float | None) -> float | None:
            return None if first is None or last is None else (last - first) / elapsed_s

        return cls(share(before.waiting_s, after.waiting_s), share(before.stolen_s, after.stolen_s))

    def complaints(self) -> tuple[str, ...]:
        """Why the timings cannot be trusted; empty where they can."""
        found = []
        if (self.waiting or 0) > MAX_WAITING:
            found.append(f"tasks waited for a CPU {self.waiting:.0%} of the time (at most {MAX_WAITING:.0%})")
        if (self.stolen or 0) > MAX_STOLEN:
            found.append(f"the hypervisor took {self.stolen:.0%} of a CPU away (at most {MAX_STOLEN:.0%})")
        return tuple(found)
