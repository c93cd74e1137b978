"""Validated data kept between runs, so that a start needs neither a YAML parser nor a validator.

One JSON file for each key (a type and a path, say). Beside the data it holds the key and all that the data was made
from, as text, and both must be equal: nothing rests on a digest, and hashlib would cost a start more than the whole
reading. An entry that cannot be read or written, or whose checksum fails, is as if it were not there.

The folder: KVPLAN_CACHE_DIR, else LOCALAPPDATA on Windows, XDG_CACHE_HOME or ~/.cache elsewhere; an empty
KVPLAN_CACHE_DIR turns the cache off.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from kvplan.files import replace_file


def cache_dir() -> Path | None:
    """Where entries stand; None where there is no cache."""
    override = os.environ.get("KVPLAN_CACHE_DIR")
    if override is not None:
        return Path(override) if override else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return Path(base) / "kvplan" / "Cache" if base else None
    home = os.environ.get("HOME")
    base = os.environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    return Path(base) / "kvplan" if base else None


def recall(key: str, made_from: str) -> Any:
    """The data stored under `key` if it was made from the same, else None."""
    try:
        checksum, _, body = _entry(key).read_bytes().partition(b"\n")
        *stored, data = json.loads(body) if checksum == _checksum(body) else [None]
    except (OSError, ValueError):
        return None
    return data if stored == [key, made_from] else None


def remember(key: str, made_from: str, data: Any) -> None:
    """Store plain data under `key`, replacing what stood there; silently not, where that is impossible."""
    body = json.dumps([key, made_from, data], separators=(",", ":")).encode("ascii")
    with suppress(OSError):
        path = _entry(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _checksum(body) + b"\n" + body)


def _checksum(data: bytes) -> bytes:
    return f"{crc32(data):08x}".encode("ascii")


def _entry(key: str) -> Path:
    folder = cache_dir()
    if folder is None:
        raise FileNotFoundError("no cache folder")
    return folder / f"{crc32(key.encode('utf-8', 'surrogateescape')):08x}-{len(key)}.json"
