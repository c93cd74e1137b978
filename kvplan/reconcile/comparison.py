"""One figure of a log beside its prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvplan.logs.observed import Reading

_RATIOS = {"max_concurrency", "gpu_memory_utilization"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was printed, what is predicted with its range (`low` to `high`), and why they differ if they do.

    `quantity`: a name of `kvplan.logs.quantities`, `full_pool_bytes` and the like for one pool, or `ledger_kv_bytes`.
    `agrees`: some value of the range would have been printed so. `line`: the log's line, 0 where several make it.
    """

    quantity: str
    unit: Literal["bytes", "count", "ratio"]
    observed: float
    predicted: float
    low: float
    high: float
    agrees: bool
    basis: str
    cause: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted value and the ends within which it is expected."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Range:
        """A value without a range."""
        return cls(value, value, value)


def compared(quantity: str, reading: Reading, predicted: Range, basis: str) -> Comparison:
    """A reading against its prediction, at the resolution of the print."""
    nearest = min(max(reading.number, predicted.low), predicted.high)
    return Comparison(
        quantity=quantity,
        unit="bytes" if quantity.endswith("_bytes") else "ratio" if quantity in _RATIOS else "count",
        observed=reading.number,
        predicted=predicted.value,
        low=predicted.low,
        high=predicted.high,
        agrees=reading.allows(nearest),
        basis=basis,
        line=reading.line,
    )


def summed(quantity: str, readings: list[Reading]) -> Reading:
    """Several readings as one: their sum, with the sum of their resolutions."""
    from kvplan.logs.observed import Reading

    total, resolution = sum(r.number for r in readings), sum(r.resolution for r in readings)
    return Reading(quantity, int(total), resolution, line=readings[0].line if len(readings) == 1 else 0)
