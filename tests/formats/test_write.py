"""kvplan.formats.write: where an answer goes, and that nothing is left half-written."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan import formats
from kvplan.errors import BadInput
from kvplan.table import Document


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "suffix", "expected"),
    [
        (None, ".md", "markdown"), (None, ".HTML", "html"), (None, ".htm", "html"), (None, ".json", "json"),
        (None, ".csv", "csv"), (None, ".txt", "table"), ("json", ".md", "json"), ("csv", "", "csv"),
    ],
)  # fmt: skip
def test_the_name_decides_before_the_suffix(
    compare: Document, tmp_path: Path, name: str | None, suffix: str, expected: str
) -> None:
    output = tmp_path / f"plan{suffix}"

    formats.write(compare, name, output)

    assert output.read_text(encoding="utf-8") == formats.render(compare, expected)


@pytest.mark.parametrize("name", ["plan.xlsx", "plan"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(compare: Document, tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"no format has the suffix '.*'; use \.csv, .*\.md.*, or give --format"):
        formats.write(compare, None, tmp_path / name)


@pytest.mark.parametrize(("name", "apart"), [("table", True), ("csv", True), ("json", False), ("markdown", False)])
def test_notes_go_to_stderr_unless_the_format_holds_them(
    compare: Document, capsys: pytest.CaptureFixture[str], name: str, apart: bool
) -> None:
    formats.write(compare, name, None)
    out, err = capsys.readouterr()

    assert err == ("note: The latent is on all ranks; --dcp 8 would share it out.\n" if apart else "")
    assert ("The latent" in out) is not apart


def test_without_a_name_and_a_file_the_answer_is_a_table(compare: Document) -> None:
    stream = io.StringIO()

    formats.write(compare, None, None, stream=stream)

    assert stream.getvalue() == formats.render(compare, "table")


def test_an_old_terminal_gets_plain_signs(report: Document) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    formats.write(report, "table", None, stream=stream)
    stream.seek(0)

    assert "GPU memory   139.812       -       -  measured" in stream.read()


def test_a_file_is_replaced_whole_and_keeps_its_mode(compare: Document, tmp_path: Path) -> None:
    output = tmp_path / "plan.md"
    output.write_text("old")
    output.chmod(0o640)

    formats.write(compare, None, output)

    assert output.read_text() == formats.render(compare, "markdown")
    assert stat.S_IMODE(output.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [output]


def test_a_link_stays_a_link_to_the_new_text(compare: Document, tmp_path: Path) -> None:
    target, link = tmp_path / "real.md", tmp_path / "plan.md"
    link.symlink_to(target)

    formats.write(compare, None, link)

    assert link.is_symlink()
    assert target.read_text() == formats.render(compare, "markdown")


def test_a_write_that_fails_leaves_the_old_file(
    compare: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "plan.md"
    output.write_text("old")

    def full(path: Path, content: bytes) -> int:
        path.open("xb").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BadInput, match=r"plan\.md: cannot be written: No space left on device"):
        formats.write(compare, None, output)

    assert output.read_text() == "old"
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("name", ["missing/plan.md", "folder.md", "file/plan.md"])
def test_what_cannot_be_written_is_one_line(compare: Document, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(BadInput, match=f"{name}: cannot be written: "):
        formats.write(compare, None, tmp_path / name)


def test_a_device_is_written_to_and_not_replaced(compare: Document) -> None:
    formats.write(compare, "json", Path(os.devnull))

    assert not Path(os.devnull).is_file()


CLOSED_PIPE = """
from kvplan.formats import write
from kvplan.table import Column, Document, Table
write(Document("x", [Table("t", (Column("a", "A"),), [("x" * 60,)] * 20_000)], {}), "csv", None)
"""


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", CLOSED_PIPE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"
    process.stdout.close()

    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_behind_stdout_is_one_line(compare: Document) -> None:
    with Path("/dev/full").open("w") as stream, pytest.raises(BadInput, match="No space left"):
        formats.write(compare, "csv", None, stream=stream)


def test_notes_on_a_terminal_are_set_apart_and_wrapped_between_words(
    compare: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    formats.write(compare, "csv", None, stream=io.StringIO())

    assert terminal.getvalue() == "\nnote: The latent is on all ranks; --dcp\n      8 would share it out.\n"


def test_a_file_never_gets_colour_codes(compare: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    formats.write(compare, None, tmp_path / "plan.txt")

    assert "\x1b" not in (tmp_path / "plan.txt").read_text()
