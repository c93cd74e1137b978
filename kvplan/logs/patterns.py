"""Patterns of log lines, written as the lines themselves.

A template is the text that an engine prints, with `<name:unit>` where a value stands and `...` for any text between:

    "model weights take <weights:gib>GiB; ...non_torch_memory takes <non_torch:gib>GiB"

A blank matches any run of blanks, none included, because the same line is printed with and without them. A unit that
is a size puts `_bytes` behind the name. Every other character stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kvplan.units import GIB, MIB

Value: TypeAlias = int | float | str | tuple[int, ...]
Printed: TypeAlias = tuple[Value, float]
"""A value and the resolution, in the value's own unit: 8.11 GiB -> (8708046193, 10737418.24)."""

_NUMBER = r"(?<![\d.])-?\d{1,15}(?:\.\d{1,20})?(?!\.?\d)"
_COUNT = r"(?<![\d.,])(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?![\d,]*\d)"
_MAX_GAP = 400


@dataclass(frozen=True, slots=True)
class Unit:
    """How a value of this unit looks, what it becomes, and what its name ends in."""

    regex: str
    read: Callable[[str], Printed]
    suffix: str = ""


def _size(scale: int) -> Callable[[str], Printed]:
    return lambda text: (round(float(text) * scale), scale * _resolution(text))


def _resolution(text: str) -> float:
    """Engines print at least two decimals; a value such as `20.0` was rounded to two and lost its last zero."""
    return float(10 ** -max(2, len(text.partition(".")[2])))


def _whole(text: str) -> Printed:
    return int(text.replace(",", "")), 0.0


_UNITS: Mapping[str, Unit] = {
    "gib": Unit(_NUMBER, _size(GIB), "_bytes"),
    "mib": Unit(_NUMBER, _size(MIB), "_bytes"),
    "whole_mib": Unit(_COUNT, lambda text: (int(text.replace(",", "")) * MIB, 2.0 * MIB), "_bytes"),  # cut, not rounded
    "bytes": Unit(_COUNT, _whole, "_bytes"),
    "count": Unit(_COUNT, _whole),
    "number": Unit(_NUMBER, lambda text: (float(text), _resolution(text))),
    "list": Unit(r"\d{1,15}(?:,\s*\d{1,15}){0,255}", lambda text: (tuple(map(int, text.split(","))), 0.0)),
    "word": Unit(r"[\w./:+-]{1,200}", lambda text: (text, 0.0)),
    "core": Unit(r"V\d", lambda text: (text, 0.0)),
    "label": Unit(r"(?:Full |SWA )?", lambda text: (text, 0.0)),
    "device": Unit(r"[A-Za-z][\w.()\[\]:-]{0,80}", lambda text: (text, 0.0)),
    "gguf": Unit(r"\w{1,10}(?:\[[^\]=]{0,40}\])?", lambda text: (text, 0.0)),
    "name": Unit(r"[^()\n]{1,80}", lambda text: (text, 0.0)),
    "words": Unit(r"[^\s=][^=\n]{0,200}?", lambda text: (text.strip(), 0.0)),
    "rest": Unit(r".{0,2000}", lambda text: (text.strip(), 0.0)),
}

Phase = Literal["fact", "start", "load", "pool"]
Repeats = Literal["last", "least", "sum"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line.

    `anchor`: bytes that every such line holds and lines of a serving engine seldom do; no other line is looked at.
    `kind`: what the line is to its engine (see each engine's module); "" = its values are readings.
    `phase`: `start` opens a start-up; `load` opens one if the rank had reached `pool` before.
    `repeats`: which of several values of one rank in one start-up holds.
    `word`: the longest word of the template; a line without it need not be matched.
    """

    anchor: bytes
    template: str
    kind: str = ""
    phase: Phase = "fact"
    repeats: Repeats = "last"
    regex: re.Pattern[str] = field(init=False, repr=False)
    units: Mapping[str, Unit] = field(init=False, repr=False)
    word: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        units: dict[str, Unit] = {}
        object.__setattr__(self, "regex", re.compile("".join(_pieces(self.template, units))))
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "word", max(_PART.sub(" ", self.template).split(), key=len))

    def match(self, text: str, *, complete: bool = True) -> re.Match[str] | None:
        """The first place in `text` that reads as this line.

        Not inside quotes (a server logs what its users paste), and not a value that a cut line may have shortened.
        """
        found = self.regex.search(text)
        if found is None or _QUOTE.search(text, 0, found.start()):
            return None
        ends_in_value = found.lastindex is not None and found.end(found.lastindex) == len(text)
        return None if ends_in_value and not complete else found

    def values(self, found: re.Match[str]) -> dict[str, Printed]:
        """The values of a match, by quantity."""
        return {name: unit.read(found[name]) for name, unit in self.units.items()}


_QUOTE = re.compile(r"['\"]")
_PART = re.compile(r"(<\w+:\w+>|\.\.\.)")


def _pieces(template: str, units: dict[str, Unit]) -> Iterator[str]:
    """Regular expressions of the template's parts; fills `units` with what they capture.

    A gap and the text behind it form an atomic group: no backtracking, so no line takes longer than its length asks.
    """
    gap = ""
    for part in filter(None, _PART.split(template)):
        if part == "...":
            gap = f".{{0,{_MAX_GAP}}}?"
        elif part.startswith("<"):
            name, _, unit = part[1:-1].partition(":")
            units[name + _UNITS[unit].suffix] = _UNITS[unit]
            yield f"(?P<{name}{_UNITS[unit].suffix}>{_UNITS[unit].regex})"
        else:
            yield f"(?>{gap}{_literal(part)})"
            gap = ""


def _literal(text: str) -> str:
    return r"\s*".join(map(re.escape, re.split(r"\s+", text)))
