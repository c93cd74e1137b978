"""One start-up of a server while its log is being read, and what makes a line begin another.

Engines differ in what a line means to them; each engine's module may refine `Startup` for the kinds of its patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvplan.logs.arguments import parse_arguments
from kvplan.logs.observed import Pool, Reading
from kvplan.logs.patterns import Pattern, Printed, Repeats, Value

_MAX_READINGS = 20_000
_MAX_POOLS = 5_000
_MAX_NOTES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A line that an engine's pattern recognised. `rest`: the text from where a list of arguments begins."""

    pattern: Pattern
    values: Mapping[str, Printed]
    rank: str
    line: int
    rest: str = ""

    def value(self, name: str) -> Value | None:
        """The value of this name, without its resolution; None if the line has none."""
        return self.values[name][0] if name in self.values else None

    def text(self, name: str) -> str:
        """The value as text; "" if the line has none."""
        return str(self.value(name) or "")

    def whole(self, name: str) -> int | None:
        """The value if it is a whole number."""
        value = self.value(name)
        return value if isinstance(value, int) else None

    def reading(self, name: str) -> Reading:
        """The value with its resolution, its rank and its line."""
        return Reading(name, *self.values[name], rank=self.rank, line=self.line)


class Startup:
    """What one start-up has said so far."""

    def __init__(self) -> None:
        self.readings: dict[tuple[str, str], Reading] = {}
        self.pools: list[Pool] = []
        self.stated: dict[str, Any] = {}
        self.resolved: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.notes: list[str] = []
        self.first_line = 0
        self._started: set[tuple[str, str]] = set()
        self._reached_pool: set[str] = set()

    @property
    def measured(self) -> bool:
        """Whether any pool or size was printed: a server that died before says nothing to compare."""
        return bool(self.pools) or any(name.endswith("_bytes") for name, _ in self.readings)

    @property
    def flags(self) -> dict[str, Any]:
        """Arguments: what the user stated goes before what the engine resolved."""
        return self.resolved | {name: value for name, value in self.stated.items() if value is not None}

    def is_left_by(self, said: Statement) -> bool:
        """Whether this line belongs to a later start-up of the same server."""
        pattern, rank = said.pattern, said.rank
        if pattern.phase == "start" and (pattern.template, rank) in self._started:
            return True
        return pattern.phase in ("start", "load") and rank in self._reached_pool

    def add(self, said: Statement) -> None:
        """Take a line in."""
        self.first_line = self.first_line or said.line
        if said.pattern.phase == "start":
            self._started.add((said.pattern.template, said.rank))
        elif said.pattern.phase == "pool":
            self._reached_pool.add(said.rank)
        self.take(said)

    def take(self, said: Statement) -> None:
        """What the line means. Kinds that every engine has; an engine's own come in its module."""
        match said.pattern.kind:
            case "stated" | "resolved" as whose:
                self.take_arguments(said, self.stated if whose == "stated" else self.resolved)
            case "flags":
                self.resolved |= {name: value for name, (value, _) in said.values.items()}
            case "note":
                self.note(f"line {said.line}: {said.pattern.template}")
            case _:
                self.keep((said.reading(name) for name in said.values), said.pattern.repeats)

    def take_arguments(self, said: Statement, target: dict[str, Any], *, separator: str = ",") -> None:
        """The arguments that the line lists."""
        opened = said.pattern.template.endswith(("{", "("))
        target |= parse_arguments(said.rest, separator=separator, closes=opened)

    def keep(self, readings: Iterable[Reading], repeats: Repeats = "last") -> None:
        """Remember readings; several of one rank are settled as their pattern says."""
        for new in readings:
            key = new.name, new.rank
            old = self.readings.get(key)
            if old is None and len(self.readings) >= _MAX_READINGS:
                self.note(f"more than {_MAX_READINGS} values in one start-up; the rest is not read")
                return
            self.readings[key] = new if old is None else self._settled(old, new, repeats)

    def _settled(self, old: Reading, new: Reading, repeats: Repeats) -> Reading:
        """What holds of two readings of one quantity by one rank."""
        first, second = old.value, new.value
        if isinstance(first, (str, tuple)) or isinstance(second, (str, tuple)):
            return new
        if repeats == "sum":
            return replace(new, value=first + second, resolution=old.resolution + new.resolution)
        if old.allows(second) or new.allows(first):
            return min(old, new, key=lambda reading: reading.resolution)
        kept = old if repeats == "least" and first < second else new
        whose = f"{new.name} of {new.rank}" if new.rank else new.name
        self.note(f"{whose}: lines {old.line} and {new.line} differ; line {kept.line} is kept")
        return kept

    def add_pool(self, pool: Pool) -> None:
        """One more pool."""
        if len(self.pools) < _MAX_POOLS:
            self.pools.append(pool)
        else:
            self.note(f"more than {_MAX_POOLS} pools in one start-up; the rest is not read")

    def note(self, text: str) -> None:
        """Something that a reader should know; said once."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)
