"""One deployment question put to several planners, kvplan's answer computed: a table of the how-to on DeepSeek-R1.

    python benchmarks/planners.py sessions     or checkpoint

The others' answers were taken on 2026-11-30: DeepSeek-R1 on 8 x H200, TP 8, bf16 cache, 8,192 tokens, utilization 0.90.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.markdown import table
from kvplan.catalog import load_gpu, load_model
from kvplan.plan import Plan, Scenario, plan

CONTEXT_TOKENS = 8192
QUESTION = Scenario(
    model=load_model("deepseek-r1"), gpu=load_gpu("h200"), gpus=8, context=CONTEXT_TOKENS, kv_dtype="bf16"
)
OTHERS = (
    ("kvfit 0.3.0", 87, "no activations, graphs or collectives; the card taken for 141 GiB"),
    (
        "aiconfigurator, cache set to bf16",
        68,
        "weights 84.61 GiB, activations 1.53, runtime 3.5, communication 0.38; 141 GiB",
    ),
    (
        "aiconfigurator, as it comes",
        137,
        "an fp8 cache inferred from fp8 weights; engines keep bf16 for this checkpoint",
    ),
    ("ridgepoint 0.1.2", 689, "divides the latent by TP: the memory of all GPUs over the bytes of one copy"),
    ("llm-d-planner 0.3.3", 691, "divides the latent by TP"),
)
"""Planner, sessions, why."""
PRINTED_TOKENS, PRINTED_FRACTION, ESTIMATED_TOKENS = 509_000, 0.82, 497_973
"""An upstream SGLang run of this deployment, and another planner's estimate of it
(https://github.com/ai-dynamo/aisimulate/pull/263)."""


def answer(engine: str, fraction: float) -> Plan:
    """The question under an engine and its memory fraction."""
    return plan(replace(QUESTION, engine=engine, gpu_memory_utilization=fraction))


def sessions() -> str:
    """Sessions of 8k, by planner."""
    own = answer("vllm", 0.9)
    low, high = (int(own.layout.max_batch(pool, CONTEXT_TOKENS)) for pool in own.budget.kv_pool_range)
    bare = (own.budget.requested_bytes - own.budget.lines[0].bytes) // own.session_bytes_logical
    rows = (
        (
            f"**kvplan**, vllm {own.engine.default_version}",
            f"**{own.max_batch}**",
            f"{low} to {high} over the budget's range",
        ),
        ("requested memory less weights, over a session", bare, "arithmetic without overheads"),
        *OTHERS,
    )
    return table(("planner", "sessions of 8k", "why"), rows)


def checkpoint() -> str:
    """Tokens of the pool against what SGLang printed."""
    found = answer("sglang", PRINTED_FRACTION).capacity.kv_tokens
    rows = (
        ("SGLang, as printed", f"about {PRINTED_TOKENS:,}", ""),
        ("kvplan", f"{found:,}", f"{found / PRINTED_TOKENS - 1:+.1%}"),
        ("aisimulate", f"{ESTIMATED_TOKENS:,}", f"{ESTIMATED_TOKENS / PRINTED_TOKENS - 1:+.1%}"),
    )
    return table((f"mem_fraction_static {PRINTED_FRACTION}", "tokens in the pool", "error"), rows)


def sections() -> Mapping[str, Callable[[], str]]:
    """Everything that can be asked for, by name."""
    return {"sessions": sessions, "checkpoint": checkpoint}


if __name__ == "__main__":
    for name in sys.argv[1:] or sections():
        print(sections()[name](), end="\n\n")
