"""Where a rendered answer goes: a stream that may close early, or a file that is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

from kvplan.errors import BadInput
from kvplan.files import replace_file

_PLAINER = str.maketrans({"─": "-", "—": "-", "–": "-", "×": "x", "µ": "u", "·": "-", "…": ".", "→": ">"})


def to_stream(text: str, stream: TextIO) -> None:
    """Write and flush. A reader who has seen enough (`| head`) ends the output, not the command."""
    try:
        stream.write(_encodable(text, stream.encoding))
        stream.flush()
    except BrokenPipeError:
        _discard_the_rest(stream)
    except OSError as error:
        _discard_the_rest(stream)
        raise BadInput(f"the answer cannot be written: {error.strerror}") from error


def _discard_the_rest(stream: TextIO) -> None:
    """The interpreter flushes once more at exit: let that go nowhere instead of failing again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def to_file(content: bytes, output: Path) -> None:
    """Write beside `output`, then rename: a reader never sees half a file, and a failure leaves the old one."""
    try:
        if output.exists() and not output.is_file():
            output.write_bytes(content)  # a device or a pipe; a folder refuses
        else:
            replace_file(output.resolve(), content)
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}") from error


def _encodable(text: str, encoding: str | None) -> str:
    """`text` in what an old terminal can show: plain signs for fine ones, and `?` for the rest."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAINER).encode(encoding, "replace").decode(encoding)
    return text
