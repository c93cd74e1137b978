from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.diskcache import cache_dir, recall, remember


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVPLAN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_data_comes_back_only_for_what_it_was_made_from(folder: Path) -> None:
    remember("model a", "v1", {"a": [1, None, "é"]})
    assert recall("model a", "v1") == {"a": [1, None, "é"]}
    assert recall("model a", "v2") is None
    assert recall("model b", "v1") is None


def test_one_entry_stands_for_each_key(folder: Path) -> None:
    for version in ("v1", "v2"):
        remember("model a", version, version)
    assert len(list(folder.iterdir())) == 1
    assert recall("model a", "v2") == "v2"


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b.replace(b"1", b"2"), lambda b: b"", lambda b: b"\xff\n1"]
)
def test_a_spoilt_entry_is_as_if_it_were_not_there(folder: Path, spoil: object) -> None:
    remember("k", "v", [1, 1])
    (entry,) = folder.iterdir()
    entry.write_bytes(spoil(entry.read_bytes()))  # type: ignore[operator]
    assert recall("k", "v") is None
    remember("k", "v", [1, 1])
    assert recall("k", "v") == [1, 1]


def test_two_keys_in_one_file_are_told_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvplan.diskcache.crc32", lambda _: 0)
    remember("key a", "v", 1)
    assert (recall("key a", "v"), recall("key b", "v")) == (1, None)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("KVPLAN_CACHE_DIR", str(tmp_path / "file" / "cache"))
    remember("k", "v", 1)
    assert recall("k", "v") is None


def test_an_empty_variable_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_CACHE_DIR", "")
    remember("k", "v", 1)
    assert cache_dir() is None
    assert recall("k", "v") is None


@pytest.mark.parametrize(
    ("platform", "env", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, Path("/x/kvplan")),
        ("linux", {"HOME": "/h"}, Path("/h/.cache/kvplan")),
        ("linux", {}, None),
        ("darwin", {"HOME": "/h"}, Path("/h/.cache/kvplan")),
        ("win32", {"LOCALAPPDATA": "/l", "HOME": "/h"}, Path("/l/kvplan/Cache")),
    ],
)
def test_the_folder_is_where_the_platform_keeps_caches(
    platform: str, env: dict[str, str], folder: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KVPLAN_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    assert cache_dir() == folder
