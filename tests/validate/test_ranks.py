"""Two gloo ranks: bytes as planned on each, and together the output of one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import BadInput
from kvplan.validate.ranks import CONTEXT_TOKENS, process_group

SIZE = 2
WORKER = Path(__file__).with_name("rank_worker.py")


def start(rank: int, port: int) -> subprocess.Popen[str]:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": SIZE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = os.environ | {k: str(v) for k, v in names.items()} | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, str(WORKER)], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def checks() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(memory, numerics) of every rank and scheme."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [start(rank, port) for rank in range(SIZE)]
    answers = [worker.communicate(timeout=180)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * SIZE
    memory, numerics = json.loads(answers[0])
    return memory, numerics


def test_each_rank_holds_what_the_plan_says(checks: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    memory, _ = checks
    assert [m["id"] for m in memory] == [
        f"rank{r}-{scheme}" for r in range(SIZE) for scheme in ("gqa-tp", "mla-tp", "mla-dcp")
    ]
    assert all(m["ok"] for m in memory), memory
    half, whole, shared = (m["measured_bytes"] for m in memory[:3])
    assert half == 2 * CONTEXT_TOKENS * 4096 // SIZE
    assert whole == 2 * CONTEXT_TOKENS * 1152
    assert shared == 2 * (CONTEXT_TOKENS + 1) // SIZE * 1152


def test_together_they_compute_what_one_rank_computes(
    checks: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    _, numerics = checks
    assert len(numerics) == 3 * SIZE
    assert all(n["ok"] for n in numerics), numerics


def test_without_torchrun_the_command_to_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(BadInput, match="torchrun --nproc-per-node 2"), process_group("cpu"):
        pass
