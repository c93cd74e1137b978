"""One GPU's memory, line by line: label, bytes, range, and where the figure comes from.

Every line has an `origin`: *exact* (arithmetic), *measured* (a source), *given* (by the user) or *estimate* (a rule
with its error band, `low_bytes` to `high_bytes`). A pool inherits the ranges of the lines that it is what remains of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from kvplan.errors import UnknownName

Origin = Literal["exact", "measured", "given", "estimate"]


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes that something takes on one GPU. `rule` says how they were found, in a few words."""

    label: str
    bytes: int
    low_bytes: int
    high_bytes: int
    origin: Origin
    rule: str

    @classmethod
    def exact(cls, label: str, size: int, rule: str) -> Line:
        """A line without a range."""
        return cls(label, size, size, size, "exact", rule)

    @classmethod
    def estimate(cls, label: str, size: float, rule: str, *, below: float, above: float) -> Line:
        """An estimate with an absolute band: `below` and `above` bytes away from it; never negative."""
        low, high = max(0, int(size - below)), max(0, int(size + above))
        return cls(label, max(0, int(size)), low, high, "estimate", rule)


@dataclass(frozen=True, slots=True)
class Budget:
    """What the engine may use (`requested_bytes` of `gpu_total_bytes`), what it spends, and the pool that remains.

    `lines` are subtracted from `requested_bytes`; `beside` lie outside the request (slack that must fit next to it).
    """

    gpu_total_bytes: int
    requested_bytes: int
    lines: tuple[Line, ...]
    request_rule: str
    beside: tuple[Line, ...] = ()
    given_pool_bytes: int | None = None

    @property
    def remainder_bytes(self) -> int:
        """Request minus lines; negative where not even the weights fit."""
        if self.given_pool_bytes is not None:
            return self.given_pool_bytes
        return self.requested_bytes - sum(line.bytes for line in self.lines)

    @property
    def kv_pool_bytes(self) -> int:
        """What the KV cache gets; 0 where nothing remains."""
        return max(0, self.remainder_bytes)

    @property
    def kv_pool_range(self) -> tuple[int, int]:
        """Low and high: ranges add as independent errors do (root of squares), each side on its own."""
        if self.given_pool_bytes is not None:
            return self.given_pool_bytes, self.given_pool_bytes
        up = sum((line.bytes - line.low_bytes) ** 2 for line in self.lines) ** 0.5
        down = sum((line.high_bytes - line.bytes) ** 2 for line in self.lines) ** 0.5
        return max(0, int(self.remainder_bytes - down)), max(0, int(self.remainder_bytes + up))


def given_pool(pool_bytes: int, gpu_total_bytes: int) -> Budget:
    """A pool that the user states; no budget is made."""
    return Budget(gpu_total_bytes, pool_bytes, (), "KV pool given", given_pool_bytes=pool_bytes)


MEASURABLE = ("weights", "activation", "non_torch", "cuda_graphs")
"""Lines that people measure on a site, whatever the engine subtracts of them."""


def with_given(budget: Budget, given_bytes: Mapping[str, int]) -> Budget:
    """A budget whose lines are those that the user measured, by label.

    A measured line that the engine leaves out of its budget stands beside it; a label that nobody knows is an error.
    """
    own = [line.label for line in (*budget.lines, *budget.beside)]
    for label in given_bytes:
        if label not in own and label not in MEASURABLE:
            raise UnknownName.of("budget line", label, [*own, *MEASURABLE])
    rest = tuple(_given(label, size) for label, size in given_bytes.items() if label not in own)
    lines, beside = (tuple(_replaced(line, given_bytes) for line in part) for part in (budget.lines, budget.beside))
    return replace(budget, lines=lines, beside=(*beside, *rest))


def _given(label: str, size: int) -> Line:
    return Line(label, size, size, size, "given", "given")


def _replaced(line: Line, given_bytes: Mapping[str, int]) -> Line:
    return _given(line.label, given_bytes[line.label]) if line.label in given_bytes else line
