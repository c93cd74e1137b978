"""What servers printed, where the collectors' own arithmetic confirmed it exactly, written as a log and reconciled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.observed_rows import V0_RELEASES, Row, read_rows
from kvplan.errors import KvplanError
from kvplan.logs import Observed
from kvplan.plan import Scenario
from kvplan.reconcile import Comparison
from tests.startups import blocks, concurrency, held, pool, read, tokens, vllm

EXACT = {
    "num_gpu_blocks", "kv_tokens", "max_concurrency", "pool_kv_bytes", "pool_full_bytes", "pool_swa_bytes",
    "allocated_kv_bytes", "kv_cells",
}  # fmt: skip
"""Figures that follow from what else the log prints."""
SGLANG = "[2026-01-01 00:00:00 TP0] "


def _digits(value: float) -> str:
    """A size as engines print it: at least two decimals."""
    return max(f"{value:.2f}", repr(value), key=len)


def _vllm(row: Row, scenario: Scenario, release: str) -> Observed:
    if release in V0_RELEASES:
        counted = f"# GPU blocks: {row.get('num_gpu_blocks')}, # CPU blocks: {row.get('num_cpu_blocks')}"
        lines = [counted] if row.get("num_gpu_blocks") else []
    else:
        lines = [blocks(row.get("num_gpu_blocks"))] if row.get("num_gpu_blocks") else []
    if row.get("available_kv_gib"):
        lines.append(pool(_digits(row.get("available_kv_gib"))))
    if row.get("kv_tokens"):
        lines.append(tokens(row.get("kv_tokens")))
    if row.get("max_concurrency"):
        lines.append(concurrency(scenario.context or 0, row.get("max_concurrency")))
    flags = {
        "tensor_parallel_size": scenario.tp, "data_parallel_size": scenario.dp, "max_model_len": scenario.context,
        "decode_context_parallel_size": scenario.dcp, "kv_cache_dtype": scenario.kv_dtype,
        "block_size": scenario.block_size, "max_num_seqs": scenario.max_num_seqs,
        "max_num_batched_tokens": scenario.max_num_batched_tokens, **scenario.engine_args,
    }  # fmt: skip
    return vllm(*lines, version=release, **flags)


def _sglang(row: Row, scenario: Scenario, release: str) -> Observed:
    label = {"swa": "SWA ", "full": "Full ", "kv": ""}[row.part]
    names = ("kv_size_gb",) if row.get("k_size_gb") is None else ("k_size_gb", "v_size_gb")
    sizes = ", ".join(f"{name.split('_')[0].upper()} size: {_digits(row.get(name))} GB" for name in names)
    observed = read(f"{SGLANG}{label}KV Cache is allocated. #tokens: {row.get('kv_tokens')}, {sizes}")
    flags = {
        "tp_size": scenario.tp,
        "pp_size": scenario.pp,
        "kv_cache_dtype": scenario.kv_dtype,
        "page_size": scenario.block_size,
    }
    return replace(observed, flags={**flags, **scenario.engine_args})


def _tensorrt_llm(row: Row, scenario: Scenario, release: str) -> Observed:
    size = _digits(row.get("available_kv_gib"))
    line = f"[MemUsageChange] Allocated {size} GiB for max tokens in paged KV cache ({row.get('kv_tokens')})."
    flags = {
        "tensor_parallel_size": scenario.tp,
        "tokens_per_block": scenario.block_size,
        "kv_cache_dtype": scenario.kv_dtype,
    }
    return replace(read(f"[TensorRT-LLM][INFO] {line}"), flags=flags)


def _llama_cpp(row: Row, scenario: Scenario, release: str) -> Observed:
    total, kind = row.get("kv_total_mib_reported"), row.get("kv_cache_dtype") or "f16"
    halves = ", ".join(f"{part} ({kind}): {total / 2:8.2f} MiB" for part in "KV")
    name = {"swa": "    SWA", "full": "non-SWA", "kv": ""}[row.part]
    opened = [f"llama_kv_cache_iswa: creating {name} KV cache, size = {row.get('cells')} cells"] if name else []
    shape = f"({row.get('cells'):6} cells, {row.get('layers_reported') or 1:3} layers,  1/1 seqs)"
    return read(*opened, f"llama_kv_cache: size = {total:7.2f} MiB {shape}, {halves}")


WRITERS = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm, "llama.cpp": _llama_cpp}
NEEDED = {
    "vllm": ("available_kv_gib",), "sglang": ("kv_tokens",), "tensorrt-llm": ("available_kv_gib", "kv_tokens"),
    "llama.cpp": ("kv_total_mib_reported", "cells"),
}  # fmt: skip


def _usable(row: Row) -> bool:
    if row.get("check_verdict") != "exact" or row.model is None or row.engine is None:
        return False
    of_another_rank = row.engine == "vllm" and ((row.get("pp") or 1) > 1 or row.unknown_drafter)
    quoted_whole = isinstance(row.get("kv_size_gb"), int)  # not as it was printed
    return not of_another_rank and not quoted_whole and all(row.get(name) is not None for name in NEEDED[row.engine])


def _answers(row: Row) -> Iterator[dict[str, Comparison]]:
    """Under each release, and on each kind of GPU, that the row may be of."""
    for release in row.releases():
        for scenario in row.scenarios(release):
            observed = WRITERS[str(row.engine)](row, scenario, release)
            try:
                found = held(observed, scenario.model, scenario.gpu)
            except KvplanError:
                continue
            yield {q: c for q, c in found.items() if q in EXACT}


def _best(row: Row) -> dict[str, Comparison]:
    return min(_answers(row), key=lambda found: sum(not c.agrees for c in found.values()), default={})


@pytest.mark.groundtruth
def test_where_the_arithmetic_was_exact_the_prediction_is_what_was_printed(groundtruth: Path) -> None:
    rows = [row for row in read_rows(groundtruth) if _usable(row)]
    missed: dict[str, Any] = {}
    compared = 0
    for row in rows:
        found = _best(row)
        compared += len(found)
        if wrong := [(q, c.observed, c.predicted, c.cause) for q, c in found.items() if not c.agrees]:
            missed[row.row_id] = wrong

    assert missed == {}
    assert len(rows) >= 110
    assert compared >= 200
