"""Every captured log is answered: figure by figure, or by the one line that says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.causes import UNEXPLAINED
from kvplan.documents.reconcile import CAPACITY, MEMORY
from kvplan.errors import KvplanError
from kvplan.logs import read_log
from kvplan.reconcile import Reconciliation, reconcile

CAPTURED = Path(__file__).parents[1] / "logs" / "captured"
LOGS = sorted(path.name for path in CAPTURED.iterdir() if path.name != "index.yaml")
UNSAID: dict[str, dict[str, Any]] = {
    "vllm-0.8.3-deepseek-r1-wna16-tp16.log": {"model": "deepseek-r1", "tp": 16},
    "vllm-0.8.5-v0-qwen3-30b-a3b.log": {"model": "qwen3-30b-a3b"},
    "vllm-0.9.2-v0-unsloth-qwen2.5-0.5b.log": {"model": "qwen2.5-0.5b"},
    "vllm-0.6.6-qwen2.5-vl-context-refused.log": {"model": "qwen2.5-vl-7b"},
    "vllm-0.7.0-v1-llama-3.1-70b-w8a8.log": {"model": "llama-3.1-70b"},
    "vllm-0.11.1-kimi-k2-thinking-tp8-dcp8.log": {"model": "kimi-k2-thinking"},
    "vllm-0.13.0-ascend-qwen3-235b-tp16.log": {"model": "qwen3-235b-a22b", "gpu": "ascend-910b3", "tp": 16},
    "vllm-0.21.0-qwen3.6-27b-tp2-graphs-counted.log": {"model": "qwen3.6-27b", "gpu": "rtx-3090"},
    "vllm-0.29.1-minimax-m2.7-tp2.log": {"model": "minimax-m2.7", "gpu": "gb10", "tp": 2},
    "sglang-0.5.4-deepseek-v3.2-dp8.log": {"model": "deepseek-v3.2", "gpu": "h200"},
    "sglang-0.5.8-kimi-k2.5-tp8.log": {"tp": 8},
    "sglang-0.5.9-nemotron-h-xpu-tp4.log": {"model": "nemotron-3-nano-30b-a3b"},
    "sglang-0.5.15-gemma-e4b-bf16.log": {"model": "gemma-4-e4b"},
    "sglang-0.5.15-gemma-e4b-nvfp4.log": {"model": "gemma-4-e4b", "gpu": "b200"},
    "sglang-0.5.5-kimi-k2-tp8-tiny-pool.log": {"model": "kimi-k2"},
    "sglang-0.5.17-qwen3.8-27b-dflash-drafter-tp2.log": {"tp": 2},
    "trtllm-0.16-dynamo-8b.log": {"model": "llama-3.1-8b"},
    "trtllm-1.3-qwen3-reranker.log": {"model": "qwen3-0.6b"},
    "llamacpp-lmstudio-qwen3.6-27b.log": {"model": "qwen3.6-27b"},
    "llamacpp-b9990-qwen3.6-27b-states.log": {"model": "qwen3.6-27b"},
    "llamacpp-gpt-oss-120b-q8_0.log": {"model": "gpt-oss-120b"},
    "llamacpp-gemma-e4b-full-swa.log": {"model": "gemma-4-e4b"},
    "ik-llama-deepseek-r1-mla2.log": {"model": "deepseek-r1"},
    "ik-llama-deepseek-r1-q8_0.log": {"model": "deepseek-r1"},
    "ik-llama-qwen3-235b-q8_0.log": {"model": "qwen3-235b-a22b"},
}
"""What the sources of the logs say and the logs themselves do not."""
EXACT = {"num_gpu_blocks", "kv_tokens", "max_concurrency", "kv_cells", "per_token_bytes", "needed_kv_bytes"}


def _reconciled(name: str) -> Reconciliation:
    unsaid = dict(UNSAID.get(name, {}))
    return reconcile(
        read_log(CAPTURED / name), model=unsaid.pop("model", None), gpu=unsaid.pop("gpu", None), unsaid=unsaid
    )


@pytest.mark.parametrize("name", LOGS)
def test_a_captured_log_is_answered_or_says_what_is_missing(name: str) -> None:
    try:
        found = reconcile(read_log(CAPTURED / name))
    except KvplanError as error:
        assert str(error).strip()
        return
    assert {c.quantity for c in found.comparisons} <= MEMORY.keys() | CAPACITY.keys()
    assert all(c.agrees or c.cause for c in found.comparisons)


@pytest.mark.parametrize("name", sorted(UNSAID))
def test_figures_of_exact_rules_agree_or_have_a_known_cause(name: str) -> None:
    found = _reconciled(name).comparisons

    assert found
    assert [c for c in found if c.quantity in EXACT and c.cause == UNEXPLAINED] == []


AS_PREDICTED = (
    "vllm-0.8.1-r1-distill-qwen-14b-tp2.log",
    "vllm-0.9.0-qwen2.5-32b-fp8-tp2.log",
    "vllm-0.10.1-qwen3-coder-480b-dp8-refused.log",
    "vllm-0.11.0-kimi-linear-48b-tp2.log",
    "vllm-0.17.1-qwen3.5-35b-a3b-gptq.log",
    "vllm-0.19.0-deepseek-v2-lite.log",
    "vllm-0.19.0-gemma-3-27b.log",
    "vllm-0.19.0-llama-3.1-8b-tp2.log",
    "vllm-0.19.0-llama-3.1-8b-tp4.log.gz",
    "vllm-0.19.0-llama-4-scout-tp4.log",
    "vllm-0.27.1-qwen3-235b-fp8-tp4-ledger.log",
    "sglang-0.4.9-qwen3-235b-fp8-tp4.log",
    "llamacpp-b8000-draft-model.log",
)
"""Logs that name their model and state their flags."""


@pytest.mark.parametrize("name", AS_PREDICTED)
def test_a_log_that_states_its_model_and_flags_needs_no_help(name: str) -> None:
    found = {c.quantity: c for c in reconcile(read_log(CAPTURED / name)).comparisons}
    exact = {q: c for q, c in found.items() if q in CAPACITY or q == "ledger_kv_bytes"}

    assert exact
    assert [q for q, c in exact.items() if not c.agrees] == []


def test_known_causes_of_captured_differences() -> None:
    causes = {
        (name, c.quantity): c.cause
        for name in (
            "vllm-0.10.0-qwen3-235b-fp8-tp4.log",
            "vllm-0.15.2-qwen3-coder-30b-pp2-refused.log",
            "ollama-deepseek-671b.log",
        )
        for c in _reconciled(name).comparisons
    }

    assert (
        "tokens are the least over ranks: one has 8.02 GiB" in causes["vllm-0.10.0-qwen3-235b-fp8-tp4.log", "kv_tokens"]
    )
    assert "all stages" in causes["vllm-0.15.2-qwen3-coder-30b-pp2-refused.log", "needed_kv_bytes"]
    assert "predates MLA" in causes["ollama-deepseek-671b.log", "allocated_kv_bytes"]
