"""The only place that knows GB, GiB, k and M: parse what people type, format what people read.

Sizes need their unit: `80GB` (10**9 bytes each) and `80GiB` (2**30 bytes each) are different, and a bare `80` is
refused. Lengths count tokens: `4k` is 4 x 1024 and `1M` is 1024 x 1024, as context lengths are named in this field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from kvplan.errors import BadInput

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
_SIZE_UNITS = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
}  # fmt: skip
_NUMBER = re.compile(r"\s*(\d+(?:[_,]\d{3})*(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_MAX_BYTES = 2**62
_MAX_TOKENS = 2**40


def parse_bytes(text: str | int, *, where: str = "size") -> int:
    """`"40GiB"` -> 42949672960. An int is taken as exact bytes; a text without a unit is refused."""
    if isinstance(text, int) and not isinstance(text, bool):
        return _in_range(text, _MAX_BYTES, where)
    match = _NUMBER.fullmatch(str(text))
    unit = _SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise BadInput(f"{where}: {text!r} is not a size; write it with a unit, such as 80GiB, 80GB or 1024B")
    return _in_range(int(Fraction(match[1].replace(",", "").replace("_", "")) * unit), _MAX_BYTES, where)


def parse_tokens(text: str | int, *, where: str = "context") -> int:
    """`"128k"` -> 131072, `"1M"` -> 1048576, `"131072"` -> 131072."""
    if isinstance(text, int) and not isinstance(text, bool):
        return _in_range(text, _MAX_TOKENS, where, least=1)
    match = _NUMBER.fullmatch(str(text))
    scale = {"": 1, "k": KIB, "m": MIB}.get(match[2].lower()) if match else None
    if match is None or scale is None:
        raise BadInput(f"{where}: {text!r} is not a token count; write 4096, 4k, 128k or 1M (k = 1024)")
    tokens = Fraction(match[1].replace(",", "").replace("_", "")) * scale
    if tokens.denominator != 1:
        raise BadInput(f"{where}: {text!r} is not a whole number of tokens")
    return _in_range(int(tokens), _MAX_TOKENS, where, least=1)


def _in_range(value: int, most: int, where: str, *, least: int = 0) -> int:
    if not least <= value <= most:
        raise BadInput(f"{where}: {value} is outside {least}..{most}")
    return value


@dataclass(frozen=True, slots=True)
class Ladder:
    """The units in which a quantity is written, largest first, and the one to prefer where a column shares one."""

    steps: tuple[tuple[float, str], ...]
    preferred: str

    def step(self, value: float) -> tuple[float, str]:
        """Size and name of the largest unit that is not above `value`; the smallest unit below all of them."""
        return next((step for step in self.steps if abs(value) >= step[0]), self.steps[-1])

    def common_step(self, values: Iterable[float]) -> tuple[float, str] | None:
        """One unit in which all `values` read well: from 0.01 to 9,999 in the preferred unit, else from 1.

        None where no unit holds both the smallest and the largest; zero reads well in any.
        """
        sizes = [abs(value) for value in values if value]
        preferred = next(step for step in self.steps if step[1] == self.preferred)
        if not sizes or (min(sizes) >= preferred[0] / 100 and max(sizes) < preferred[0] * 10_000):
            return preferred
        size, name = self.step(min(sizes))
        return (size, name) if max(sizes) < size * 10_000 else None


BYTES = Ladder(((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B")), "GiB")
SECONDS = Ladder(((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")), "ms")


def decimal_ladder(unit: str) -> Ladder:
    """Decimal prefixes, as bandwidth and flop/s are quoted: 'B/s' -> PB/s .. B/s."""
    prefixes = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    return Ladder(tuple((size, prefix + unit) for size, prefix in prefixes), "T" + unit)


def format_bytes(value: float) -> str:
    """Bytes for people, in powers of 1024 and named so: 70272 -> '68.62 KiB'."""
    size, name = BYTES.step(value)
    return f"{value:g} B" if size == 1 else f"{value / size:,.2f} {name}"


def format_exact_bytes(value: float) -> str:
    """Every digit: 70272 -> '70,272 B'."""
    return f"{value:,} B"


def format_tokens(value: int) -> str:
    """A context length as the field names it: 131072 -> '128k', 163840 -> '160k', 5000 -> '5,000'."""
    for size, suffix in ((MIB, "M"), (KIB, "k")):
        if value >= size and value % size == 0:
            return f"{value // size}{suffix}"
    return f"{value:,}"


def format_seconds(value: float) -> str:
    """0.0000366 -> '36.6 µs'."""
    size, name = SECONDS.step(value) if value else (1.0, "s")
    return f"{format_significant(value / size)} {name}"


def format_rate(value: float, unit: str) -> str:
    """4.8e12, 'B/s' -> '4.80 TB/s' (decimal, as bandwidth and flop/s are quoted)."""
    size, name = decimal_ladder(unit).step(value)
    return f"{format_significant(value / size)} {name}"


def format_significant(value: float) -> str:
    """Three significant digits, and never an exponent: 0.03664 -> '0.0366', 1234.5 -> '1,234'."""
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, decimals)}f}"
