"""JSON for programs: the payload that the command's contract promises, with every byte exact."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.formats._screen import PAPER, Screen
from kvplan.table import Document

SUFFIXES = (".json",)
NOTES = True

_LINE = 100
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def render(document: Document, _: Screen = PAPER, /) -> str:
    """What fits in a line stays on one. Numbers that are infinite or undefined are null; `notes` is always there."""
    payload = {**document.payload, "notes": document.payload.get("notes", document.notes)}
    return _lines(_plain(payload), "") + "\n"


def line(payload: Mapping[str, Any]) -> str:
    """One payload on one line, for streams of them."""
    return _encode(_plain(payload)) + "\n"


def _plain(value: Any) -> Any:
    """Mappings, sequences and numbers as strict JSON knows them."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(value: Any, indent: str) -> str:
    """Each part is written once, from the inside out: a part is folded onto one line where all of it fits."""
    if not isinstance(value, dict | list):
        return _encode(value)
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{_encode(key)}: {_lines(item, deeper)}" for key, item in value.items()]
        start, end = "{}"
    else:
        items = [_lines(item, deeper) for item in value]
        start, end = "[]"
    flat = f"{start}{', '.join(items)}{end}"
    if len(indent) + len(flat) <= _LINE and "\n" not in flat:
        return flat
    body = f",\n{deeper}".join(items)
    return f"{start}\n{deeper}{body}\n{indent}{end}"
