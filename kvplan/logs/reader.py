"""From a log to what the engine said: which engine it was, and which of its start-ups counts."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import kvplan.logs
from kvplan.errors import BadInput
from kvplan.logs.base import LogFormat
from kvplan.logs.lines import Line, candidate_lines, clean, open_log, rank_of
from kvplan.logs.observed import Observed
from kvplan.logs.patterns import Pattern
from kvplan.logs.startup import Startup, Statement


@lru_cache(maxsize=1)
def log_formats() -> tuple[LogFormat, ...]:
    """Every log format: the modules of this package that export `LOG_FORMAT`."""
    modules = (import_module(f"{kvplan.logs.__name__}.{m.name}") for m in pkgutil.iter_modules(kvplan.logs.__path__))
    return tuple(module.LOG_FORMAT for module in modules if hasattr(module, "LOG_FORMAT"))


def read_log(source: str | Path | BinaryIO) -> Observed:
    """What a start-up log says: a path (plain, gzip or UTF-16), `-` for standard input, or an open binary stream.

    The engine is the one whose lines are most; of several start-ups the last that printed sizes counts.
    `BadInput` if no known line is found.
    """
    name = str(source) if isinstance(source, (str, Path)) else "log"
    collectors = [Collector(log_format) for log_format in log_formats()]
    readers: dict[bytes, list[tuple[Pattern, Collector]]] = {}
    for collector in collectors:
        for pattern in collector.format.patterns:
            readers.setdefault(pattern.anchor, []).append((pattern, collector))
    with open_log(source) as chunks:
        for line in candidate_lines(chunks, readers):
            _read_line(line, [reader for anchor in line.anchors for reader in readers[anchor]])
    return _said_most(collectors, name).observed(name)


def _read_line(line: Line, readers: Iterable[tuple[Pattern, Collector]]) -> None:
    head = line.head()
    for pattern, collector in readers:
        if pattern.word in head and (said := _statement(pattern, line, head)):
            collector.add(said)


def _said_most(collectors: Iterable[Collector], source: str) -> Collector:
    heard = [collector for collector in collectors if collector.statements]
    if not heard:
        known = "; ".join(f"{each.engine}: {_example(each)}" for each in log_formats())
        raise BadInput(f"{source}: no line of a start-up log is in it; looked for lines such as {known}")
    return max(heard, key=lambda collector: collector.statements)


def _example(log_format: LogFormat) -> str:
    return next(f"{p.template.split('<')[0].strip()!r}" for p in log_format.patterns if p.phase == "pool")


class Collector:
    """One engine's view of a log."""

    def __init__(self, log_format: LogFormat) -> None:
        self.format = log_format
        self.statements = 0
        self._startup = log_format.startup()
        self._measured: Startup | None = None
        self._startups = 1

    def add(self, said: Statement) -> None:
        """Take in what a line says to this engine."""
        if self._startup.is_left_by(said):
            self._measured = self._startup if self._startup.measured else self._measured
            self._startup = self.format.startup()
            self._startups += 1
        self.statements += 1
        self._startup.add(said)

    def observed(self, source: str) -> Observed:
        """The last start-up that printed sizes, or else the last."""
        last = self._startup
        chosen = last if last.measured or self._measured is None else self._measured
        if self._startups > 1:
            which = "last" if chosen is last else "last that printed sizes"
            chosen.note(f"{self._startups} start-ups in this log; the {which}, from line {chosen.first_line}, is kept")
        facts = chosen.flags | chosen.metadata
        version = next((r.value for (name, _), r in chosen.readings.items() if name == "version"), None)
        return Observed(
            engine=self.format.engine,
            source=source,
            version=version if isinstance(version, str) else None,
            model=next((str(facts[key]) for key in self.format.model_keys if facts.get(key)), None),
            flags=chosen.flags,
            metadata=chosen.metadata,
            readings=tuple(chosen.readings.values()),
            pools=tuple(chosen.pools),
            notes=tuple(chosen.notes),
        )


def _statement(pattern: Pattern, line: Line, head: str) -> Statement | None:
    found = pattern.match(head, complete=line.complete)
    if found is None:
        return None
    return Statement(
        pattern=pattern,
        values=pattern.values(found),
        rank=rank_of(head[: found.start()]),
        line=line.number,
        rest=_arguments_text(pattern, line),
    )


def _arguments_text(pattern: Pattern, line: Line) -> str:
    """For lines that list arguments, the text from the first one on: it is often longer than the head."""
    if not pattern.template.endswith(("{", "(", "=", ": ")):
        return ""
    text = clean(line.text)
    found = pattern.regex.search(text)
    if found is None:
        return ""
    return text[found.start() if pattern.template.endswith("=") else found.end() :]
