"""Damaged logs are reconciled or refused in one line; none crashes."""

from __future__ import annotations

import io
import random

import pytest

from kvplan.documents.reconcile import answer
from kvplan.errors import KvplanError
from kvplan.formats import render
from kvplan.logs import read_log
from kvplan.reconcile import reconcile
from tests.logs.test_fuzz import LOGS, MUTATIONS

MODELS = (None, "llama-3.1-8b", "qwen3.6-27b", "deepseek-v3.2", "gpt-oss-120b", "gemma-4-e4b", "deepseek-v4-flash")


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_log_is_reconciled_or_refused(seed: int) -> None:
    at = random.Random(seed)
    answered = sum(_is_answered(at) for _ in range(100))

    assert 30 < answered < 100


def _is_answered(at: random.Random) -> bool:
    log = at.choice(LOGS)
    for mutate in at.choices(MUTATIONS, k=at.randint(0, 3)):
        log = mutate(log, at) or b"\n"
    try:
        document = answer(reconcile(read_log(io.BytesIO(log)), model=at.choice(MODELS)))
    except KvplanError as error:
        assert "\n" not in str(error)
        return False
    assert all(render(document, name) for name in ("table", "json"))
    return True
