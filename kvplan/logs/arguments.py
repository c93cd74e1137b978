"""Arguments as Python prints them: `{'model': 'x', ...}`, `ServerArgs(model_path='x', ...)`, `config: model='x', ...`.

Logs cut lines and print objects that are no literals. What cannot be read stays text; a last argument that may have
been cut is dropped, because half a number is a wrong number.
"""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\[({]|[\])}]|,|\s+|[^\s'"\[\](){},]+|.""", re.DOTALL)
_OPEN, _CLOSE = frozenset("[({"), frozenset("])}")
_KEY = re.compile(r"\s*(['\"]?)([A-Za-z_][\w.-]{0,99})\1\s*[=:]\s*(.+)", re.DOTALL)
_CALL = re.compile(r"(?:[A-Za-z_][\w.]{0,99})?([({])(.*)[)}]", re.DOTALL)
_LIST = re.compile(r"[\[(](.*)[\])]", re.DOTALL)
_CONSTANTS = {"None": None, "True": True, "False": False, "null": None, "true": True, "false": False}
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_REAL = re.compile(r"[+-]?(?:\d{1,18}\.\d{0,20}|\.\d{1,20}|\d{1,18}(?=e))(?:e[+-]?\d{1,3})?", re.IGNORECASE)
_CLOSED_ENDS = ("'", '"', ")", "]", "}", "None", "True", "False")
_MAX_DEPTH = 8


def parse_arguments(text: str, *, separator: str = ",", closes: bool = True) -> dict[str, Any]:
    """Arguments up to the bracket that closes them, or up to the end of the text if none is to come (`closes=False`).

    `separator` is `,`, or ` ` for the way pydantic prints a model.
    """
    pieces, depth = _split(text, separator)
    whole = depth < 0 or (depth == 0 and not closes and pieces[-1].strip().endswith(_CLOSED_ENDS))
    return _pairs(pieces if whole else pieces[:-1], depth=0)


def _split(text: str, separator: str) -> tuple[list[str], int]:
    """Top-level pieces, and how many brackets or quotes are open at the end; -1 if an unmatched bracket closed them."""
    pieces: list[str] = []
    start = depth = 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in ("'", '"'):
            return [*pieces, text[start:]], depth + 1
        depth += (word in _OPEN) - (word in _CLOSE)
        if depth < 0:
            return [*pieces, text[start : token.start()]], depth
        if depth == 0 and (word == separator or (separator == " " and word.isspace())):
            pieces.append(text[start : token.start()])
            start = token.end()
    return [*pieces, text[start:]], depth


def _pairs(pieces: list[str], *, depth: int) -> dict[str, Any]:
    found = (_KEY.fullmatch(piece) for piece in pieces)
    return {pair[2]: parse_value(pair[3].strip(), depth) for pair in found if pair}


def parse_value(text: str, depth: int = 0) -> Any:
    """None, bool, int, float, str, list or dict; anything else as its text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _REAL.fullmatch(text):
        return float(text)
    if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(['\"\\])", r"\1", text[1:-1])
    return _nested(text, depth + 1) if depth < _MAX_DEPTH else text


def _nested(text: str, depth: int) -> Any:
    """A dict for `{...}` and `Name(a=1)`, a list for `[...]` and `(...)`; else the text."""
    if (call := _CALL.fullmatch(text)) and (pairs := _pairs(_split(call[2], ",")[0], depth=depth)):
        return pairs
    if text == "{}":
        return {}
    if listed := _LIST.fullmatch(text):
        return [parse_value(piece.strip(), depth) for piece in _split(listed[1], ",")[0] if piece.strip()]
    return text
