"""The part of YAML that a spec needs: mappings, lists, text, numbers, true, false and null.

Numbers follow YAML 1.2 (`3.35e12` is a number, `no` is text, `010` is text). Anchors, aliases, tags, duplicate keys,
keys that are not text, several documents, NaN, infinities and deep nesting are refused. Nothing recurses over the
input, and building takes one pass over the parser's events, so that no file can make reading it slow.

Import this module inside a function: it loads the YAML library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from kvplan.errors import BadInput

MAX_DEPTH = 24
FLOW_CHARS = 80
_LONGEST_NUMBER = 40
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*|(?=[eE])))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "false": False}
_WORDS |= {"True": True, "TRUE": True, "False": False, "FALSE": False}


def parse(data: bytes, where: str) -> Any:
    """The value of a YAML text in UTF-8; `BadInput`, one line that begins with `where`, for what is refused."""
    try:
        text = data.decode("utf-8-sig")
        return _build(yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)), where)
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: byte {error.start} is not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{where}: is not YAML: {' '.join(str(error).split())}") from error


@dataclass(slots=True)
class _Open:
    """A mapping or list under construction; `key`: the mapping key whose value comes next."""

    value: dict[str, Any] | list[Any]
    key: str | None = None

    def add(self, item: Any, at: str) -> None:
        if isinstance(self.value, list):
            self.value.append(item)
        elif self.key is not None:
            self.value[self.key] = item
            self.key = None
        elif not isinstance(item, str):
            raise BadInput(f"{at}: key {str(item)[:40]!r} is not text; put it in quotes")
        elif item in self.value:
            raise BadInput(f"{at}: key {item!r} stands twice in the same mapping")
        else:
            self.key = item


@dataclass(slots=True)
class _Builder:
    where: str
    stack: list[_Open] = field(default_factory=lambda: [_Open([])])

    def at(self, event: Any) -> str:
        return f"{self.where}: line {event.start_mark.line + 1}"

    def scalar(self, event: yaml.ScalarEvent) -> None:
        at = self.at(event)
        self.stack[-1].add(event.value if event.style else _plain(event.value, at), at)

    def open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        if len(self.stack) > MAX_DEPTH:
            raise BadInput(f"{self.at(event)}: nested deeper than {MAX_DEPTH} levels")
        self.stack[-1].add(value, self.at(event))
        self.stack.append(_Open(value))

    def close(self, _: Any) -> None:
        self.stack.pop()


def _build(events: Iterator[Any], where: str) -> Any:
    builder, documents = _Builder(where), 0
    actions: dict[type, Callable[[Any], None]] = {
        yaml.ScalarEvent: builder.scalar,
        yaml.MappingStartEvent: lambda event: builder.open(event, {}),
        yaml.SequenceStartEvent: lambda event: builder.open(event, []),
        yaml.MappingEndEvent: builder.close,
        yaml.SequenceEndEvent: builder.close,
    }
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1 or getattr(event, "anchor", None) or _own_tag(event):
            raise BadInput(f"{builder.at(event)}: anchors, aliases, tags and a second document are not read here")
        if type(event) in actions:
            actions[type(event)](event)
    values = builder.stack[0].value
    return values[0] if isinstance(values, list) and values else None


def _own_tag(event: Any) -> bool:
    """A tag that somebody wrote; `!` alone marks a quoted text."""
    return getattr(event, "tag", None) not in (None, "!")


def _plain(text: str, at: str) -> Any:
    """The value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise BadInput(f"{at}: {text} is not a finite number")
    is_int = _INT.fullmatch(text)
    if not is_int and not _FLOAT.fullmatch(text):
        return text
    if len(text) > _LONGEST_NUMBER or not math.isfinite(float(text)):
        raise BadInput(f"{at}: {text[:_LONGEST_NUMBER]} is out of range")
    return int(text) if is_int else float(text)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `parse`, or YAML 1.1, would take for something else; indents lists inside mappings."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)

    def represent_items(self, items: list[Any]) -> yaml.Node:
        scalars = not any(isinstance(item, list | dict) for item in items)
        short = scalars and sum(len(str(item)) + 2 for item in items) <= FLOW_CHARS
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


_Dumper.add_representer(list, _Dumper.represent_items)
for _word, _value in _WORDS.items():
    _tag = "tag:yaml.org,2002:null" if _value is None else "tag:yaml.org,2002:bool"
    _Dumper.add_implicit_resolver(_tag, re.compile(re.escape(_word) + r"\Z"), [_word[:1]])
for _tag, _pattern in (("int", _INT), ("float", _FLOAT), ("float", _NOT_FINITE)):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern.pattern})\Z"), list("-+.0123456789")
    )


def dump(data: Any) -> str:
    """YAML that `parse` reads back to equal data: keys in their order, short lists of numbers and words on one line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
