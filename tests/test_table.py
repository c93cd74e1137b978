"""kvplan.table: a document's parts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from kvplan.table import Column, Document, Figure, Section, Table

TABLE = Table("t", (Column("a", "A"),), [(1,)])
FIGURE = Figure("f", "<svg/>")
SECTION = Section("s", ["text"])


def test_a_plain_command_is_one_untitled_part() -> None:
    assert Document("x", [TABLE], {}, figures=[FIGURE]).parts == (Section("", tables=[TABLE], figures=[FIGURE]),)


def test_own_tables_come_before_the_sections() -> None:
    assert Document("x", [TABLE], {}, sections=[SECTION]).parts == (Section("", tables=[TABLE], figures=()), SECTION)


def test_a_report_is_its_sections() -> None:
    assert Document("x", (), {}, sections=[SECTION]).parts == (SECTION,)


def test_a_document_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Document("x", (), {}).lead = "other"  # type: ignore[misc]
