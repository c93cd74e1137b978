"""Older releases against what they printed at start: public logs, each with its source.

The pool is printed to 0.01 GiB, so figures lie between those of the pool half a step lower and half a step higher.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kvplan.engines.base import Capacity
from kvplan.engines.vllm import ENGINE
from kvplan.gpu import GpuSpec
from kvplan.model import ModelSpec
from tests.engines.toys import H100, deployment
from tests.engines.vllm_models import (
    GEMMA_12B,
    GEMMA_27B,
    GPT_OSS_20B,
    LLAMA_8B,
    QWEN35_35B,
    V2_LITE,
    V4_FLASH,
    V4_FLASH_MTP,
)

GIB = 2**30
PLANNER_PR = "https://github.com/llm-d-incubation/llm-d-planner/pull/205"
V4_ISSUE = "https://github.com/vllm-project/vllm/issues/51041"
QWEN_ISSUE = "https://github.com/vllm-project/vllm/issues/36973"
V4_FILES = "start-up logs of DeepSeek-V4-Flash on two H200 NVL in a public repository"
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
RTX_5090 = GpuSpec(
    name="rtx-5090", vendor="nvidia", architecture="blackwell", memory_bytes=32 * GIB, compute_capability=(12, 0),
    sources={"memory_bytes": QWEN_ISSUE, "compute_capability": QWEN_ISSUE},
)  # fmt: skip


@dataclass(frozen=True)
class Log:
    """What one start-up printed; None where the log does not say."""

    source: str
    version: str
    spec: ModelSpec
    max_model_len: int
    pool_gib: float
    kv_tokens: int
    max_concurrency: float | None = None
    num_blocks: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


LOGS = [
    Log(PLANNER_PR, "0.19.0", LLAMA_8B, 8192, 58.11, 476000, 58.11, 29750),
    Log(PLANNER_PR, "0.19.0", LLAMA_8B, 8192, 58.11, 952032, 116.21, 59502, {"kv_dtype": "fp8"}),
    Log(PLANNER_PR, "0.19.0", V2_LITE, 8192, 43.61, 1505552, 183.78, 94097),
    Log(PLANNER_PR, "0.19.0", GEMMA_12B, 8192, 47.72, 130304, 15.88, 48867),
    Log(PLANNER_PR, "0.19.0", GEMMA_27B, 8192, 19.53, 36560, 4.46, 15997),
    Log(PLANNER_PR, "0.19.0", GPT_OSS_20B, 8192, 58.47, 1277184, 155.75),
    Log(PLANNER_PR, "0.19.0", GPT_OSS_20B, 8192, 63.28, 2764768, 337.17, options={"tp": 2}),
    Log(QWEN_ISSUE, "0.17.1", QWEN35_35B, 262144, 5.18, 134144, options={"kv_dtype": "fp8", "gpu": RTX_5090}),
    Log(QWEN_ISSUE, "0.17.1", QWEN35_35B, 262144, 1.76, 44016, options={"kv_dtype": "fp8", "gpu": RTX_5090}),
    Log(V4_FILES, "0.23.0", V4_FLASH, 262144, 32.08, 2175276, 8.30, options={"tp": 2}),
    Log(V4_FILES, "0.23.0", V4_FLASH, 4096, 32.08, 90841, options={"tp": 2}),
    Log(V4_ISSUE, "0.26.0", V4_FLASH_MTP, 121344, 7.71, 150992, 1.24, options={"tp": 2, "engine_args": MTP}),
]


def capacity(log: Log, pool_gib: float) -> Capacity:
    found = ENGINE.layout(deployment(log.spec, log.max_model_len, version=log.version, **{"gpu": H100, **log.options}))
    return found.capacity(int(pool_gib * GIB))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.version}-{log.max_model_len}-{log.kv_tokens}")
def test_prints_what_the_log_shows(log: Log) -> None:
    """Tokens, blocks and concurrency lie within the rounding of the printed pool."""
    least, most = capacity(log, log.pool_gib - 0.005), capacity(log, log.pool_gib + 0.005)

    assert least.kv_tokens <= log.kv_tokens <= most.kv_tokens
    if log.num_blocks is not None:
        assert least.num_blocks <= log.num_blocks <= most.num_blocks
    if log.max_concurrency is not None:
        assert least.max_concurrency - 0.005 <= log.max_concurrency <= most.max_concurrency + 0.005
