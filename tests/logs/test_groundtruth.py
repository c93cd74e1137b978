"""What servers printed, written again in the form of their release and read back."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.logs import Observed, read_log
from kvplan.units import GIB, MIB

Row = Mapping[str, Any]
_V0 = "INFO 01-01 00:00:00 "
_V1 = "(EngineCore_DP0 pid=7) INFO 01-01 00:00:00 "
_SIZES = {
    "weights_gib": "weights_bytes",
    "non_torch_gib": "non_torch_bytes",
    "activation_peak_gib": "activation_bytes",
    "cuda_graph_gib": "graph_bytes",
    "available_kv_gib": "available_kv_bytes",
    "needed_kv_gib": "needed_kv_bytes",
    "gpu_memory_gib": "gpu_total_bytes",
}


def _rows(folder: Path, *engines: str) -> list[Row]:
    loaded = yaml.load((folder / "observations.yaml").read_text(), Loader=yaml.CSafeLoader)
    return [row for row in loaded if row["engine"].startswith(engines)]


def _digits(value: float) -> str:
    """A size as engines print it: at least two decimals."""
    return max(f"{value:.2f}", repr(value), key=len)


def _has(row: Row, *names: str) -> bool:
    return all(row[name] is not None for name in names)


def _v0(row: Row) -> Iterator[str]:
    if _has(row, "weights_gib"):
        yield f"{_V0}model_runner.py:1115] Loading model weights took {row['weights_gib']:.4f} GB"
    if _has(row, "weights_gib", "non_torch_gib", "activation_peak_gib", "available_kv_gib"):
        yield (
            f"{_V0}[worker.py:267] model weights take {row['weights_gib']:.2f}GiB; non_torch_memory takes "
            f"{row['non_torch_gib']:.2f}GiB; PyTorch activation peak memory takes {row['activation_peak_gib']:.2f}GiB; "
            f"the rest of the memory reserved for KV Cache is {row['available_kv_gib']:.2f}GiB."
        )
    blocks, swapped = row["num_gpu_blocks"], row["num_cpu_blocks"]
    yield f"{_V0}[executor_base.py:112] # cuda blocks: {blocks}, # CPU blocks: {swapped}"


def _v1(row: Row) -> Iterator[str]:
    if _has(row, "weights_gib"):
        yield f"{_V1}[x.py:1] Model loading took {_digits(row['weights_gib'])} GiB memory and 1.0 seconds"
    if _has(row, "available_kv_gib"):
        yield f"{_V1}[gpu_worker.py:1] Available KV cache memory: {row['available_kv_gib']:.2f} GiB"
    if _has(row, "kv_tokens"):
        yield f"{_V1}[kv_cache_utils.py:1] GPU KV cache size: {row['kv_tokens']:,} tokens"
    if _has(row, "max_concurrency", "max_model_len"):
        length, most = row["max_model_len"], row["max_concurrency"]
        yield f"{_V1}[kv_cache_utils.py:1] Maximum concurrency for {length:,} tokens per request: {most:.2f}x"
    if _has(row, "cuda_graph_gib"):
        yield f"{_V1}[x.py:1] Graph capturing finished in 9 secs, took {row['cuda_graph_gib']:.2f} GiB"
    if _has(row, "num_gpu_blocks"):
        said = "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is"
        yield f"{_V1}[loggers.py:1] {said}: {row['num_gpu_blocks']}"
    if _has(row, "needed_kv_gib", "estimated_max_len"):
        yield (
            f"{_V1}ValueError: To serve at least one request with the models's max seq len ({row['max_model_len']}), "
            f"({row['needed_kv_gib']:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({row['available_kv_gib']:.2f} GiB). Based on the available memory, the estimated maximum model "
            f"length is {row['estimated_max_len']}. Try"
        )


def _read(lines: Iterator[str]) -> Observed | None:
    text = "".join(f"{line}\n" for line in lines)
    return read_log(io.BytesIO(text.encode())) if text else None


def _sizes_hold(observed: Observed, row: Row) -> Iterator[str]:
    """The sizes of the row that were read; asserts each."""
    for column, name in _SIZES.items():
        reading = observed.first(name)
        if reading is not None and row[column] is not None:
            assert reading.value == round(row[column] * GIB), (row["id"], name)
            yield name


@pytest.mark.groundtruth
def test_what_vllm_printed_is_read_back(groundtruth: Path) -> None:
    sizes: list[str] = []
    read = 0
    for row in _rows(groundtruth, "vllm"):
        v0 = _has(row, "num_gpu_blocks", "num_cpu_blocks")
        observed = _read(_v0(row) if v0 else _v1(row))
        if observed is None:
            continue
        read += 1
        sizes += _sizes_hold(observed, row)
        for name in ("num_gpu_blocks", *(() if v0 else ("kv_tokens",))):
            reading = observed.first(name)
            assert (reading.value if reading else None) == row[name], (row["id"], name)

    assert read >= 170
    assert len(sizes) >= 240


@pytest.mark.groundtruth
def test_what_sglang_printed_is_read_back(groundtruth: Path) -> None:
    read = 0
    for row in _rows(groundtruth, "sglang"):
        if not _has(row, "kv_tokens") or not (_has(row, "k_size_gb", "v_size_gb") or _has(row, "kv_size_gb")):
            continue
        names = ("kv_size_gb",) if row["k_size_gb"] is None else ("k_size_gb", "v_size_gb")
        text = ", ".join(f"{name.split('_')[0].upper()} size: {row[name]:.2f} GB" for name in names)
        line = f"[2026-01-01 00:00:00 TP0] KV Cache is allocated. #tokens: {row['kv_tokens']}, {text}\n"
        (pool,) = read_log(io.BytesIO(line.encode())).pools
        read += 1
        assert pool.slots == row["kv_tokens"]
        assert [part.value for part in pool.parts.values()] == [round(row[name] * GIB) for name in names]

    assert read >= 28


@pytest.mark.groundtruth
def test_what_tensorrt_llm_printed_is_read_back(groundtruth: Path) -> None:
    rows = [row for row in _rows(groundtruth, "tensorrt-llm") if _has(row, "available_kv_gib", "kv_tokens")]
    for row in rows:
        size, tokens = row["available_kv_gib"], row["kv_tokens"]
        line = f"[MemUsageChange] Allocated {size:.2f} GiB for max tokens in paged KV cache ({tokens})."
        observed = read_log(io.BytesIO(f"[TensorRT-LLM][INFO] {line}\n".encode()))
        values = {reading.name: reading.value for reading in observed.readings}
        assert values == {"allocated_kv_bytes": round(size * GIB), "kv_tokens": tokens}

    assert len(rows) >= 5


@pytest.mark.groundtruth
def test_what_llama_cpp_printed_is_read_back(groundtruth: Path) -> None:
    rows = [r for r in _rows(groundtruth, "llama.cpp", "ik_llama", "ollama") if _has(r, "kv_total_mib_reported")]
    for row in rows:
        total, kind = row["kv_total_mib_reported"], row["kv_cache_dtype"] or "f16"
        halves = f"K ({kind}): {total / 2:8.2f} MiB, V ({kind}): {total / 2:8.2f} MiB"
        if _has(row, "cells", "layers_reported"):
            shape = f"({row['cells']:6} cells, {row['layers_reported']:3} layers, {row['max_num_seqs'] or 1:2}/1 seqs)"
            line = f"llama_kv_cache: size = {total:7.2f} MiB {shape}, {halves}\n"
        else:
            line = f"llama_new_context_with_model: KV self size  = {total:7.2f} MiB, {halves}\n"
        (pool,) = read_log(io.BytesIO(line.encode())).pools
        assert pool.total is not None
        assert pool.total.value == round(total * MIB)
        assert (pool.slots, pool.layers) in {(row["cells"], row["layers_reported"]), (None, None)}

    assert len(rows) >= 14
