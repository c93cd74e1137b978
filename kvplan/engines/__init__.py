"""Serving engines, one module each; `engine(name)` finds the module and returns its `ENGINE`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from kvplan.engines.base import Engine
from kvplan.errors import UnknownName

_NOT_ENGINES = {"__init__", "base"}


def engine_names() -> tuple[str, ...]:
    """Module names of this package that hold an engine, sorted. A helper module starts with an underscore."""
    names = {p.name.partition(".")[0] for p in Path(__file__).parent.iterdir() if p.suffix in {".py", ""}}
    return tuple(sorted(n for n in names - _NOT_ENGINES if not n.startswith("_")))


@cache
def engine(name: str) -> Engine:
    """The engine called `name`; `-` and `_` are the same."""
    module = name.lower().replace("-", "_").replace(".", "_")
    if module not in engine_names():
        raise UnknownName.of("engine", name, engine_names())
    found: Engine = import_module(f"kvplan.engines.{module}").ENGINE
    return found
