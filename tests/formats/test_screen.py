"""kvplan.formats.Screen: how wide, and whether in colour."""

from __future__ import annotations

import io
import os

import pytest

from kvplan.formats import Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "terminal", "width", "colour"),
    [
        ({}, False, 80, False),
        ({"COLUMNS": "120"}, False, 120, False),
        ({"COLUMNS": "120"}, True, 120, True),
        ({"COLUMNS": "wide"}, False, 80, False),
        ({"COLUMNS": "0"}, False, 80, False),
        ({"COLUMNS": "90", "NO_COLOR": "1"}, True, 90, False),
        ({"COLUMNS": "90", "TERM": "dumb"}, True, 90, False),
        ({"FORCE_COLOR": "1"}, False, 80, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, 80, False),
    ],
)
def test_the_screen_is_what_stream_and_environment_say(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, width: int, colour: bool
) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert Screen.of(Terminal() if terminal else io.StringIO()) == Screen(width, colour)


def test_a_terminal_is_asked_for_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((133, 40)))
    terminal = Terminal()
    monkeypatch.setattr(terminal, "fileno", lambda: 1)

    assert Screen.of(terminal).width == 133
