"""Lines are found, cleaned and numbered whatever way the log was written and pasted."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import BadInput
from kvplan.logs.lines import Line, candidate_lines, clean, open_log, rank_of

TEXT = "first\nsecond KV cache size: 5 tokens\nthird\n"


def _lines(data: bytes, *anchors: bytes) -> list[Line]:
    with open_log(io.BytesIO(data)) as chunks:
        return list(candidate_lines(chunks, anchors or (b"KV cache",)))


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        gzip.compress(TEXT.encode()),
        gzip.compress(TEXT[:20].encode()) + gzip.compress(TEXT[20:].encode()),
        TEXT.encode("utf-16"),
        b"\xef\xbb\xbf" + TEXT.encode(),
    ],
    ids=["plain", "windows", "gzip", "gzip members", "utf-16", "utf-8 with mark"],
)
def test_a_line_is_found_in_every_encoding(data: bytes) -> None:
    assert _lines(data) == [Line(2, "second KV cache size: 5 tokens", True, (b"KV cache",))]


def test_compressed_data_that_end_early_give_the_lines_before(tmp_path: Path) -> None:
    packed = gzip.compress(b"KV cache\n" + bytes(range(256)) * 2000)

    assert [line.text for line in _lines(packed[: len(packed) // 2])] == ["KV cache"]


def test_damaged_compressed_data_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(b"\x1f\x8b not gzip at all")

    with open_log(path) as chunks, pytest.raises(BadInput, match=r"server\.log\.gz: cannot be read"):
        list(chunks)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match=r"nowhere\.log: cannot be read: No such file"), open_log("nowhere.log"):
        pass


def test_a_stream_stays_open_for_its_owner() -> None:
    stream = io.BytesIO(TEXT.encode())
    with open_log(stream) as chunks:
        list(chunks)

    assert not stream.closed


def test_a_progress_bar_and_what_follows_it_are_lines_of_their_own() -> None:
    bars = "".join(f"Capturing: {n}%|####|\r" for n in range(100))
    found = _lines(f"{bars}KV cache one\nKV cache two".encode())

    assert [(line.number, line.text, line.complete) for line in found] == [
        (1, "KV cache one", True),
        (2, "KV cache two", False),
    ]


def test_a_line_of_megabytes_is_cut_around_the_anchor() -> None:
    (line,) = _lines(b"x" * 3_000_000 + b"KV cache" + b"y" * 500_000 + b"\n")

    assert "KV cache" in line.text
    assert len(line.text) <= 2 * 2**16


def test_bytes_that_are_no_text_do_not_stop_the_reading() -> None:
    assert _lines(b"\xff\xfeKV cache"[2:] + b"\xc3\x28\n")[0].text == "KV cache\ufffd("


class _InChunks(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces: Iterator[bytes] = iter([data[at : at + size] for at in range(0, len(data), size)])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        piece = next(self._pieces, b"")
        buffer[: len(piece)] = piece
        return len(piece)


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"KV cache", b" x=1 GiB", b"\xff"]), max_size=30),
    st.integers(1, 40),
)
def test_the_size_of_chunks_changes_nothing(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    anchors = (b"KV cache", b"iB")
    with open_log(_InChunks(data, size)) as chunks:  # type: ignore[arg-type]
        in_chunks = [(line.number, line.text, line.anchors) for line in candidate_lines(chunks, anchors)]

    assert in_chunks == [(line.number, line.text, line.anchors) for line in _lines(data, *anchors)]


@given(st.lists(st.sampled_from(["plain", "KV cache", "two GiB, KV cache", "GB", "iB", ""]), max_size=20))
def test_exactly_the_lines_with_an_anchor_are_found(lines: list[str]) -> None:
    found = _lines("\n".join(lines).encode(), b"KV cache", b"iB")

    expected = [(n, line) for n, line in enumerate(lines, start=1) if "KV cache" in line or "iB" in line]
    assert [(line.number, line.text) for line in found] == expected


@pytest.mark.parametrize(
    "coloured",
    [
        "\x1b[1;36m(Worker_TP3 pid=9)\x1b[0;0m INFO took",
        "[1;36m(Worker_TP3 pid=9)[0;0m INFO took",
        "#033[1;36m(Worker_TP3 pid=9)#033[0;0m INFO took",
        '{"log":"(Worker_TP3 pid=9) INFO took',
        '2026-04-19T12:18:36Z {"level":"info","message":"\\u001b[36m(Worker_TP3 pid=9)\\u001b[0m INFO took',
    ],
)
def test_colours_and_json_wrappers_are_taken_off(coloured: str) -> None:
    assert clean(coloured) == "(Worker_TP3 pid=9) INFO took"


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("INFO 12-13 19:54:18 worker.py:243] ", ""),
        ("(EngineCore_0 pid=123) INFO ", "EngineCore_0"),
        ("(EngineCore_DP5 pid=123) INFO ", "EngineCore_DP5"),
        ("(Worker_TP0_EP0 pid=1159) INFO ", "Worker_TP0_EP0"),
        ("(VllmWorkerProcess pid=240) INFO ", "VllmWorkerProcess pid=240"),
        ("(RayWorkerWrapper pid=7, ip=10.0.0.2) INFO ", "RayWorkerWrapper pid=7"),
        ("(VllmWorker rank=2 pid=36130) INFO ", "rank2"),
        ("(MapWorker(MapBatches(Stage)) pid=369, ip=10.0.96.2) (Worker_PP1 pid=3) INFO ", "Worker_PP1"),
        ("Feb 22 06:34:50 box vllm[79]: (APIServer pid=1) INFO ", "APIServer"),
        ("api-1  | 2026-04-19T12:18:36.353Z stdout F [rank3]: ", "rank3"),
        ("[2026-09-11 23:46:11 TP0 EP0] ", "TP0 EP0"),
        ("[2025-10-08 06:03:00 DP1 TP3 PP0] ", "DP1 TP3 PP0"),
        ("[2025-10-08 06:03:00] ", ""),
        ("[TensorRT-LLM][INFO][RANK 1] ", "rank1"),
        ("[1,3]<stdout>:[TensorRT-LLM][INFO] ", "rank3"),
    ],
)
def test_the_rank_is_read_from_the_prefix(prefix: str, rank: str) -> None:
    assert rank_of(prefix) == rank
