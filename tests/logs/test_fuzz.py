"""Ten thousand damaged logs: each is read or refused, none crashes or hangs."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.errors import KvplanError
from kvplan.logs import parse_metrics, read_log

CAPTURED = Path(__file__).parent / "captured"
LOGS = [path.read_bytes() for path in sorted(CAPTURED.glob("*.log")) if path.stat().st_size < 4000]
_GARBAGE = [
    b"\x00",
    b"\xff\xfe",
    b"\x1b[31m",
    b"\r",
    b"'",
    b'"',
    b"{{{{",
    b"(((",
    b"]",
    b"\xe2\x96\x88",
    b"<<name:unit>>",
    b"%s",
]
_NUMBERS = [b"9" * 400, b"-1", b"0", b"1e999", b"NaN", b"0.0000000000000000000001", b",,,", b"1,2,3,4,5,6,7,8,9", b"."]
Mutation = Callable[[bytes, random.Random], bytes]


def _flip(log: bytes, at: random.Random) -> bytes:
    damaged = bytearray(log)
    for _ in range(at.randint(1, 20)):
        damaged[at.randrange(len(log))] = at.randrange(256)
    return bytes(damaged)


def _cut(log: bytes, at: random.Random) -> bytes:
    first, last = sorted((at.randrange(len(log)), at.randrange(len(log))))
    return log[first:last] if at.random() < 0.5 else log[:first] + log[last:]


def _repeat(log: bytes, at: random.Random) -> bytes:
    lines = log.splitlines(keepends=True)
    return b"".join(at.choices(lines, k=at.randint(1, 2 * len(lines))))


def _insert(log: bytes, at: random.Random) -> bytes:
    where = at.randrange(len(log))
    return log[:where] + at.choice(_GARBAGE) * at.randint(1, 40) + log[where:]


def _renumber(log: bytes, at: random.Random) -> bytes:
    digits = [index for index, byte in enumerate(log) if byte in b"0123456789"]
    where = at.choice(digits or [0])
    return log[:where] + at.choice(_NUMBERS) + log[where + 1 :]


def _mix(log: bytes, at: random.Random) -> bytes:
    other = at.choice(LOGS)
    return log[: at.randrange(len(log))] + other[at.randrange(len(other)) :]


MUTATIONS: list[Mutation] = [_flip, _cut, _repeat, _insert, _renumber, _mix]


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_log_is_read_or_refused(seed: int) -> None:
    at = random.Random(seed)
    read = 0
    for _ in range(1000):
        log = at.choice(LOGS)
        for mutate in at.choices(MUTATIONS, k=at.randint(1, 3)):
            log = mutate(log, at) or b"\n"
        read += _is_read(log)

    assert 500 < read < 1000


def _is_read(log: bytes) -> bool:
    try:
        observed = read_log(io.BytesIO(log))
    except KvplanError as error:
        assert "\n" not in str(error)
        return False
    for reading in observed.readings:
        assert reading.line >= 1
        assert not isinstance(reading.value, (int, float)) or abs(reading.value) < 10**25
    return True


@pytest.mark.parametrize("seed", range(3))
def test_damaged_metrics_are_read_or_refused(seed: int) -> None:
    at = random.Random(seed)
    text = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="573",x="a\\"b"} 1.0\n'
    text += b'sglang:token_usage{tp_rank="0"} 0.5\n'
    for _ in range(300):
        damaged = at.choice([_flip, _cut, _insert, _renumber])(text, at)
        try:
            parse_metrics(damaged.decode(errors="replace"))
        except KvplanError as error:
            assert "\n" not in str(error)
