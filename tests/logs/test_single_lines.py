"""Lines that no captured log holds, each read on its own; together with the captured logs they use every pattern."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan.logs import Observed, read_log
from kvplan.logs.patterns import Pattern
from kvplan.logs.reader import log_formats
from kvplan.units import GIB, MIB

CAPTURED = Path(__file__).parent / "captured"
_CORE = "(EngineCore pid=9) INFO 09-01 08:00:00 [x.py:1] "
_SGLANG = "[2026-08-17 16:52:12 TP0] "
_POOL = "llama_kv_cache_unified: size =  128.00 MiB (  4096 cells,  16 layers,  "
_HALVES = " seqs), K (f16):   64.00 MiB, V (q8_0):   64.00 MiB"


def _gib(text: str) -> int:
    return round(float(text) * GIB)


def _readings(observed: Observed) -> dict[str, Any]:
    return {reading.name: reading.value for reading in observed.readings}


def _flags(observed: Observed) -> dict[str, Any]:
    return dict(observed.flags)


def _metadata(observed: Observed) -> dict[str, Any]:
    return dict(observed.metadata)


def _pool(observed: Observed) -> dict[str, Any]:
    (pool,) = observed.pools
    assert pool.total is not None
    return {"total": pool.total.value, "streams": pool.streams} | {n: part.value for n, part in pool.parts.items()}


LINES: list[tuple[str, Callable[[Observed], dict[str, Any]], dict[str, Any]]] = [
    (
        "(EngineCore pid=9) ValueError: Free memory on device cuda:0 (15.32/22.04 GiB) on startup is less than desired "
        "GPU memory utilization (0.88, 19.39 GiB). Decrease GPU memory utilization",
        _readings,
        {
            "free_bytes": _gib("15.32"),
            "gpu_total_bytes": _gib("22.04"),
            "gpu_memory_utilization": 0.88,
            "requested_bytes": _gib("19.39"),
        },
    ),
    (
        f"{_CORE}Free memory after profiling: 46.93 GiB (total), 42.53 GiB (within requested)",
        _readings,
        {"free_after_profile_bytes": _gib("46.93")},
    ),
    (
        f"{_CORE}Multiplying the GPU KV cache size by the cp_world_size 4 (pcp_world_size 1 * dcp_world_size 4).",
        _readings,
        {"cp_world_size": 4, "pcp_world_size": 1, "dcp_world_size": 4},
    ),
    (
        f"{_CORE}Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512",
        _readings,
        {"profiled_num_gpu_blocks": 0, "num_gpu_blocks": 512},
    ),
    (f"{_CORE}kv cache group sizes (16,)", _readings, {"kv_cache_group_sizes": (16,)}),
    (
        f"{_CORE}CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, "
        "CUDA graph memory is not accounted for, which may require lowering --gpu-memory-utilization",
        _readings,
        {"graph_memory_profiling": "disabled"},
    ),
    (
        "(Worker pid=37014) INFO Graph capturing finished in 4 secs, took -0.03 GiB [repeated 3x across cluster]",
        _readings,
        {"graph_bytes": _gib("-0.03")},
    ),
    (
        f"{_CORE}Auto-fit max_model_len: reduced from 262144 to 172032 to fit in available GPU memory (3.01 GiB)",
        _flags,
        {"derived_max_model_len": 262144, "max_model_len": 172032},
    ),
    (
        f"{_SGLANG}Mamba Cache is allocated. max_mamba_cache_size: 614, conv_state size: 0.38GB, "
        "ssm_state size: 10.81GB intermediate_ssm_state_cache size: 1.20GB "
        "intermediate_conv_window_cache size: 0.05GB ",
        _readings,
        {"draft_ssm_bytes": _gib("1.20"), "draft_conv_bytes": _gib("0.05")},
    ),
    (
        f"{_SGLANG}Use sliding window memory pool (all SWA). swa_layer_tokens=4096",
        _readings,
        {"swa_tokens": 4096},
    ),
    (
        f"{_SGLANG}Post-capture KV sizing: KV cache allocated. #tokens: 9, KV size: 7.50 GB, avail mem=3.00 GB",
        _readings,
        {"kv_pool_bytes": _gib("7.50")},
    ),
    (
        "TensorRT-LLM engine args: {'model': 'm', 'tensor_parallel_size': 8, 'kv_cache_config': {'dtype': 'fp8'}}",
        _flags,
        {"model": "m", "tensor_parallel_size": 8, "kv_cache_config": {"dtype": "fp8"}},
    ),
    ("main: build = 3455 (b1c2d3e4)", _readings, {"version": "3455", "commit": "b1c2d3e4"}),
    ('INFO [      main] build info | tid="1" build=3710 commit="ff0a"', _readings, {"version": "3710"}),
    ("llm_load_print_meta: n_head_kv        = 8", _metadata, {"n_head_kv": 8}),
    (
        f"[2025-07-09 18:09:10.514] [info] llama.cpp: {_POOL}1{_HALVES}",
        _pool,
        {"total": 128 * MIB, "streams": None, "k": 64 * MIB, "v": 64 * MIB},
    ),
    (f"{_POOL}1/ 1{_HALVES}", _pool, {"total": 128 * MIB, "streams": 1, "k": 64 * MIB, "v": 64 * MIB}),
    (
        "llama_new_context_with_model: KV self size = 128.00 MiB, c^KV (f16): 68.00 MiB, kv^T (f16): 60.00 MiB",
        _pool,
        {"total": 128 * MIB, "streams": None, "latent": 68 * MIB, "transposed": 60 * MIB},
    ),
]


@pytest.mark.parametrize(("line", "part", "expected"), LINES)
def test_a_line_on_its_own_says_what_it_prints(
    line: str, part: Callable[[Observed], dict[str, Any]], expected: dict[str, Any]
) -> None:
    assert part(read_log(io.BytesIO(f"{line}\n".encode()))) == expected


def test_every_pattern_reads_a_captured_log_or_a_line_of_this_file() -> None:
    lines = [line for line, _, _ in LINES]
    for path in CAPTURED.glob("*.log"):
        lines += path.read_text(errors="replace").splitlines()

    assert [p.template for each in log_formats() for p in each.patterns if not _reads_any(p, lines)] == []


def _reads_any(pattern: Pattern, lines: list[str]) -> bool:
    return any(pattern.word in line and pattern.regex.search(line) for line in lines)
