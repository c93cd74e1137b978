"""Layer indices as people write them: single ones, inclusive ranges, and a step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from kvplan.errors import BadInput

_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?")
MAX_LAYERS = 4096


@lru_cache(maxsize=1024)
def layer_indices(text: str) -> tuple[int, ...]:
    """`"0-2,5,8-16/4"` -> (0, 1, 2, 5, 8, 12, 16): indices and inclusive ranges, with a step after `/`."""
    indices: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise BadInput(f"layers: {part!r} in {text!r} is not an index, a range such as 0-59 or 3-59/4")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or last >= MAX_LAYERS or step < 1:
            raise BadInput(f"layers: {part!r} in {text!r} runs backwards, has step 0 or passes {MAX_LAYERS} layers")
        indices.extend(range(first, last + 1, step))
    return tuple(indices)


def layer_ranges(indices: Iterable[int]) -> str:
    """The shortest text that `layer_indices` reads back: runs of equal steps become ranges."""
    rest, parts = sorted(indices), []
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        run = 1
        while run < len(rest) and rest[run] - rest[run - 1] == step:
            run += 1
        run = 1 if run == 2 and step > 1 else run
        suffix = "" if step == 1 or run == 1 else f"/{step}"
        parts.append(f"{rest[0]}-{rest[run - 1]}{suffix}" if run > 1 else f"{rest[0]}")
        rest = rest[run:]
    return ",".join(parts)
