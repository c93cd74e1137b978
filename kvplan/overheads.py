"""Overheads that a site measured: written by `kvplan reconcile --calibrate`, used by `kvplan fit --overheads`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kvplan.errors import BadInput, UnknownName
from kvplan.files import MAX_SPEC_BYTES, read_bytes, replace_file

LINES = ("weights", "activation", "non_torch", "cuda_graphs")


def read_overheads(path: Path) -> Mapping[str, int]:
    """`overheads: {non_torch: 1234, ...}` in bytes -> budget lines by label."""
    from kvplan.strict_yaml import parse

    content = parse(read_bytes(path, MAX_SPEC_BYTES), str(path))
    lines = content.get("overheads") if isinstance(content, dict) else None
    if not isinstance(lines, dict) or not lines:
        raise BadInput(f"{path}: has no mapping `overheads`; kvplan reconcile --calibrate writes one")
    for label, value in lines.items():
        if label not in LINES:
            raise UnknownName.of("budget line", str(label), LINES, where=f"{path}: overheads: ")
        if type(value) is not int or not 0 <= value < 2**50:
            raise BadInput(f"{path}: overheads: {label}: {value!r} is not a number of bytes")
    return lines


def write_overheads(path: Path, source: str, lines: Mapping[str, int]) -> None:
    """The file that `read_overheads` reads; `source` says which log the figures are from."""
    from kvplan.strict_yaml import dump

    try:
        replace_file(path, dump({"source": source, "overheads": dict(lines)}).encode())
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
