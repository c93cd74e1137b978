"""What a log format is: the lines of one engine, and what they mean to it."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.logs.patterns import Pattern
from kvplan.logs.startup import Startup


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """One engine's log. A module of `kvplan.logs` that describes one exports it as `LOG_FORMAT`.

    `engine`: its name, as `kvplan.engines` has it. `model_keys`: where flags and metadata name the model, best first.
    `startup`: what its kinds of lines mean.
    """

    engine: str
    patterns: tuple[Pattern, ...]
    model_keys: tuple[str, ...]
    startup: type[Startup] = Startup
