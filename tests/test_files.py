from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvplan.errors import BadInput
from kvplan.files import read_bytes, replace_file


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(BadInput, match=r"f: 5 bytes; no file of this kind has more than 4"):
        read_bytes(path, 4)


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(BadInput, match="1,099,511,627,776 bytes"):
        read_bytes(path, 2**20)


@pytest.mark.parametrize("name", ["absent", "folder", "x" * 5000, "nul\0"])
def test_what_is_no_file_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=r"cannot be read|is not a regular file"):
        read_bytes(tmp_path / name, 10)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="is not a regular file"):
        read_bytes(tmp_path / "pipe", 10)


def test_replacing_leaves_the_new_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    replace_file(path, b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"f": b"new"}


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
