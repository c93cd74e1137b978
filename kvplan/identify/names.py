"""A model's name as logs write it -> the names under which a catalogue may hold it."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HUB_CACHE = re.compile(r"models--[^/]+?--([^/]+)")
_FILE_ENDING = re.compile(r"(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)
PRECISION_WORDS = (
    r"(?:(?:ud-)?i?q\d(?:_[a-z0-9]+)*|(?:nv|mx)?fp\d+|bf16|int\d+|w\d+a\d+|\d+-?bits?|awq|gptq|gguf|exl\d|bnb|autoround|"
    r"quantized|dynamic|static|block|marlin|modelopt|kv)"
)
"""What names of quantized copies say of precision: `-FP8-dynamic`, `-GPTQ-Int4`, `-quantized.w4a16`, `-Q4_K_M`."""
_PRECISION_ENDING = re.compile(rf"(?:[-_. ]{PRECISION_WORDS})+$", re.IGNORECASE)


def repository(text: str) -> str:
    """The name that says which model: of a hub id, a path, a hub cache path or a GGUF file, its telling part."""
    cached = _HUB_CACHE.search(text)
    last = cached[1] if cached else text.rstrip("/").rpartition("/")[2]
    return _FILE_ENDING.sub("", last)


def spellings(text: str) -> Iterator[str]:
    """Names to look up, best first: the repository's name, and what it is a quantized copy of."""
    name = repository(text)
    yield name
    bare = _PRECISION_ENDING.sub("", name)
    if bare not in ("", name):
        yield bare
