"""Validated data kept between runs, so that a start needs neither a YAML parser nor a validator.

One JSON file for each key (what is described: a type and a path). Beside the data it holds the fingerprint of what the
data was made from and a checksum of itself; an entry that does not match both, or cannot be read or written, is as if
it were not there. The folder: KVPLAN_CACHE_DIR, else LOCALAPPDATA on Windows, XDG_CACHE_HOME or ~/.cache elsewhere;
an empty KVPLAN_CACHE_DIR turns the cache off.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

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


def fingerprint(*parts: bytes | str) -> str:
    """A digest of the parts, in order."""
    digest = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def recall(key: str, made_from: str) -> Any:
    """The data stored under `key` if it was made from the same, else None."""
    try:
        header, _, body = _entry(key).read_bytes().partition(b"\n")
        return json.loads(body) if header.decode("ascii") == _header(made_from, body) else None
    except (OSError, ValueError):
        return None


def remember(key: str, made_from: str, data: Any) -> None:
    """Store plain data under `key`, replacing what stood there; silently not, where that is impossible."""
    body = json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    with contextlib.suppress(OSError):
        path = _entry(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _header(made_from, body).encode("ascii") + b"\n" + body)


def _header(made_from: str, body: bytes) -> str:
    return f"{made_from} {fingerprint(body)}"


def _entry(key: str) -> Path:
    folder = cache_dir()
    if folder is None:
        raise FileNotFoundError("no cache folder")
    return folder / f"{fingerprint(key)}.json"
