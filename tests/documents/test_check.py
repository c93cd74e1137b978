"""kvplan.documents.check: the verdicts counted, each item with what to change below its reason."""

from __future__ import annotations

from kvplan.checks import Item
from kvplan.documents.check import answer
from kvplan.formats import Screen, render
from kvplan.plan import Scenario, plan
from tests import small

ITEMS = [
    Item("default-context", "the maximum length fits", "fail", "1.00 GiB short at 32k tokens", "--context 16k"),
    Item("block-size", "page size against the latent", "warn", "a page is no multiple of 128 B", "pages of 2 tokens"),
    Item("mla-kernel", "MLA decode kernel", "pass", "vllm decodes the latent directly on h200"),
]
SCREEN = """\
latent on 2 x bare (TP 2), sglang 0.5, 32k tokens: 1 pass, 1 warn, 1 fail.

Serving checklist
Verdict  Item                          Reason, and what to change
───────────────────────────────────────────────────────────────────────────────
fail     the maximum length fits       1.00 GiB short at 32k tokens
                                       → --context 16k
warn     page size against the latent  a page is no multiple of 128 B
                                       → pages of 2 tokens
pass     MLA decode kernel             vllm decodes the latent directly on h200
"""


def test_screen() -> None:
    p = plan(Scenario(model=small.LATENT, gpu=small.BARE_GPU, tp=2, engine="sglang"))

    assert render(answer(p, ITEMS), "table", Screen(80)) == SCREEN


def test_json_keeps_reason_and_change_apart() -> None:
    payload = answer(plan(Scenario(model=small.LATENT, gpu=small.BARE_GPU)), ITEMS).payload

    assert payload["ok"] is False
    assert payload["items"][1] == {
        "id": "block-size",
        "title": "page size against the latent",
        "verdict": "warn",
        "reason": "a page is no multiple of 128 B",
        "change": "pages of 2 tokens",
    }
