"""What a serving engine said about itself: one start-up, with the line, the rank and the resolution of every value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvplan.logs.patterns import Value


@dataclass(frozen=True, slots=True)
class Reading:
    """One printed value.

    `resolution` is the step between neighbouring prints, in the value's own unit (0.01 GiB in bytes; 0 = exact).
    `rank`: the process that printed it as the log names it (`Worker_TP3`, `TP0 EP0`, `CUDA0`); "" = not said.
    """

    name: str
    value: Value
    resolution: float = 0.0
    rank: str = ""
    line: int = 0

    @property
    def number(self) -> float:
        """The value as a number; not a number (nan) where the log states a word or a list."""
        return self.value if isinstance(self.value, (int, float)) else math.nan

    def allows(self, value: float) -> bool:
        """Whether `value` would have been printed like this."""
        rounding = 0.5 if self.resolution and isinstance(self.value, int) else 0.0
        return abs(value - self.number) <= (self.resolution / 2 + rounding) * (1 + 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One cache pool as its engine announced it.

    `kind`: `kv`, `full`, `swa`, `state` or `window`, or the engine's own word. `slots`: tokens or cells; states for
    `state`. `parts`: bytes by the engine's name of the part (`k`, `v`, `latent`, `conv`, `ssm`, `r`, `s`) and `types`
    their element types. `context`: 0 = the served model; above, a draft or another context of the same server.
    """

    kind: str
    line: int
    rank: str = ""
    context: int = 0
    slots: int | None = None
    layers: int | None = None
    sequences: int | None = None
    streams: int | None = None
    blocks: int | None = None
    block_size: int | None = None
    window_tokens: int | None = None
    total: Reading | None = None
    parts: Mapping[str, Reading] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One start-up of one server.

    `flags`: the engine's arguments under its own names, what the user gave before what the engine resolved.
    `metadata`: facts about the model (llama.cpp prints GGUF keys). `readings`: see `kvplan.logs.quantities`; several
    ranks give several readings of one name. `notes`: what a reader of the comparison should know.
    """

    engine: str
    source: str
    version: str | None = None
    model: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    pools: tuple[Pool, ...] = ()
    notes: tuple[str, ...] = ()

    def each(self, name: str) -> tuple[Reading, ...]:
        """Readings of this quantity, one for each rank that printed it, in order of the log."""
        return tuple(reading for reading in self.readings if reading.name == name)

    def first(self, name: str) -> Reading | None:
        """The first rank's reading, or None."""
        return next(iter(self.each(name)), None)

    def least(self, name: str) -> Reading | None:
        """The smallest number over the ranks, which is the one that binds a pool; None where none was printed."""
        numbers = [reading for reading in self.each(name) if not math.isnan(reading.number)]
        return min(numbers, key=lambda reading: reading.number, default=None)
