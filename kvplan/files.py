"""Reading and writing whole files: bounded reads, and writes that leave the old file or the new one, never half."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kvplan.errors import BadInput

MAX_SPEC_BYTES = 2**20
"""No spec comes near it, and parsing as much takes less than a second."""


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file of at most `most_bytes`; `BadInput` for anything else, before reading it."""
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is not a regular file")
        size_bytes = path.stat().st_size
        if size_bytes > most_bytes:
            raise BadInput(f"{path}: {size_bytes:,} bytes; no file of this kind has more than {most_bytes:,}")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write beside `path`, then rename; the mode stays. Raises OSError, leaving what stood there before."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
