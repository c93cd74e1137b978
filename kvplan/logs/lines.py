"""The lines of a log that may say something: streamed, decoded, cleaned, with the rank that printed them.

A log may have gigabytes, and nearly all of them are requests. Blocks of bytes are searched for a few literal anchors;
only the lines around a hit are ever decoded.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from kvplan.errors import BadInput

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 1 << 16
"""A longer line is cut to this much around its first anchor."""
_HEAD_CHARACTERS = 2000
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number in the log (from 1), its text, whether its end was seen, and the anchors found in it."""

    number: int
    text: str
    complete: bool
    anchors: tuple[bytes, ...]

    def head(self) -> str:
        """The beginning, which holds every message; only lists of arguments are longer."""
        return clean(self.text[:_HEAD_CHARACTERS])


@contextmanager
def open_log(source: str | Path | BinaryIO) -> Iterator[Iterator[bytes]]:
    """Chunks of UTF-8 bytes of a log: a path, `-` for standard input, or an open binary stream, which stays open.

    Gzip and UTF-16 (what PowerShell's `>` writes) are recognised by their first bytes.
    """
    if isinstance(source, (str, Path)) and str(source) != "-":
        try:
            file = Path(source).open("rb")  # noqa: SIM115  the error is only that of opening
        except OSError as error:
            raise BadInput(f"{source}: cannot be read: {error.strerror}") from error
        with file:
            yield _chunks(file, str(source))
        return
    stream = sys.stdin.buffer if isinstance(source, (str, Path)) else source
    buffered = io.BufferedReader(cast(Any, stream))
    try:
        yield _chunks(buffered, "standard input" if stream is sys.stdin.buffer else "log")
    finally:
        buffered.detach()


def _chunks(stream: io.BufferedReader, name: str) -> Iterator[bytes]:
    try:
        head = stream.peek(2)
        if head.startswith(_GZIP_MAGIC):
            yield from _read(gzip.GzipFile(fileobj=stream))
        elif head.startswith(_UTF16_MARKS):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
            yield from (decoder.decode(chunk).encode() for chunk in _read(stream))
        else:
            yield from _read(stream)
    except EOFError:
        return  # compressed data that end early: the lines before are as good as a log that was cut
    except (OSError, zlib.error) as error:
        raise BadInput(f"{name}: cannot be read: {error}") from error


def _read(stream: io.BufferedReader | gzip.GzipFile) -> Iterator[bytes]:
    while chunk := stream.read1(_CHUNK_BYTES):
        yield chunk


def candidate_lines(chunks: Iterable[bytes], anchors: Iterable[bytes]) -> Iterator[Line]:
    """Lines that hold at least one of the anchors, in order."""
    anchors, number = tuple(anchors), 1
    for block in _blocks(chunks):
        yield from _candidates(block, anchors, number)
        number += block.count(b"\n")


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines. A carriage return ends a line too: progress bars are one endless line otherwise."""
    rest = b""
    for chunk in chunks:
        block = rest + chunk
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if end == 0 and len(block) > _LINE_BYTES:
            end = len(block)
        rest = block[end:]
        yield block[:end]
    yield rest


def _candidates(block: bytes, anchors: tuple[bytes, ...], number: int) -> Iterator[Line]:
    spans: dict[int, tuple[int, list[bytes]]] = {}
    for anchor in anchors:
        at = _find(block, anchor, 0)
        while at >= 0:
            start, end = _extent(block, at)
            spans.setdefault(start, (end, []))[1].append(anchor)
            at = _find(block, anchor, max(end, at + 1))
    counted = 0
    for start, (end, found) in sorted(spans.items()):
        number += block.count(b"\n", counted, start)
        counted = start
        yield Line(number, block[start:end].decode(errors="replace"), end < len(block), tuple(found))


def _find(block: bytes, anchor: bytes, start: int) -> int:
    """`bytes.find`; two bytes by way of the second, because one byte is found ten times as fast as two."""
    if len(anchor) != 2:
        return block.find(anchor, start)
    at = block.find(anchor[1:], start + 1)
    while at >= 0 and block[at - 1] != anchor[0]:
        at = block.find(anchor[1:], at + 1)
    return at - 1 if at >= 0 else -1


def _extent(block: bytes, at: int) -> tuple[int, int]:
    """First and last byte of the line around `at`, within `_LINE_BYTES` on both sides."""
    first, last = max(0, at - _LINE_BYTES), min(len(block), at + _LINE_BYTES)
    start = max(block.rfind(b"\n", first, at), block.rfind(b"\r", first, at)) + 1
    ends = [end for end in (block.find(b"\n", at, last), block.find(b"\r", at, last)) if end >= 0]
    return start or first, min(ends, default=last)


_COLOUR = re.compile(r"(?:\x1b|#033|\\x1b|\\033|\\u001b|\^\[)?\[\d{1,3}(?:;\d{1,3}){0,5}[mK]")
_MAYBE_COLOUR = re.compile(r"\[\d[\d;]{0,20}[mK]")
_JSON_WRAPPER = re.compile(r"[^\"{]{0,100}\{.{0,400}?\"(?:log|message|msg|line|body)\"\s*:\s*\"")
_RANK = re.compile(
    r"\((?P<process>[A-Za-z]\w*)(?: rank=(?P<worker>\d+))? pid=(?P<pid>\d+)"
    r"|\[\d{4}-\d\d-\d\d[ T][\d:.,]+(?P<sglang>(?: [A-Z]+\d+)+)\]"
    r"|\[(?:rank|RANK )(?P<rank>\d+)\]|\[\d+,(?P<mpi>\d+)\]<"
)
_NUMBERED = re.compile(r"\d")


def clean(text: str) -> str:
    """Without colours, also those that lost their escape on the way, and without a JSON wrapper around the message."""
    plain = _COLOUR.sub("", text) if _MAYBE_COLOUR.search(text) else text
    wrapper = _JSON_WRAPPER.match(plain)
    return plain[wrapper.end() :] if wrapper else plain


def rank_of(prefix: str) -> str:
    """The process named before a message: `Worker_TP3`, `TP0 EP0`, `rank3`; with its pid where that is all that
    tells workers apart; "" where nothing is named."""
    named = list(_RANK.finditer(prefix))
    if not named:
        return ""
    found = named[-1]
    if number := found["worker"] or found["rank"] or found["mpi"]:
        return f"rank{number}"
    if found["sglang"]:
        return str(found["sglang"]).strip()
    name = str(found["process"])
    anonymous = "Worker" in name and not _NUMBERED.search(name)
    return f"{name} pid={found['pid']}" if anonymous else name
