"""A log's engine, its start-ups, its ranks and its repeats."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kvplan.errors import BadInput
from kvplan.logs import Observed, read_log
from kvplan.logs.reader import log_formats
from kvplan.units import GIB

ENGINE = "(EngineCore pid=7) "
INIT = (
    ENGINE
    + "INFO 01-01 00:00:00 [core.py:1] Initializing a V1 LLM engine (v0.19.0) with config: model='m', seed=0, x=True"
)
TOKENS = ENGINE + "INFO 01-01 00:00:00 [kv_cache_utils.py:1] GPU KV cache size: {:,} tokens"


def _read(*lines: str, end: str = "\n") -> Observed:
    return read_log(io.BytesIO(("\n".join(lines) + end).encode()))


def _pool(gib: str, rank: str = "Worker_TP0") -> str:
    return f"({rank} pid=9) INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: {gib} GiB"


def _weights(gib: str, rank: str = "Worker_TP0") -> str:
    return f"({rank} pid=9) INFO 01-01 00:00:00 [x.py:1] Model loading took {gib} GiB memory and 1.0 seconds"


def test_every_serving_engine_has_a_log_format_under_its_own_name() -> None:
    assert {each.engine for each in log_formats()} == {"vllm", "sglang", "tensorrt-llm", "llama.cpp"}


def test_each_rank_keeps_its_own_value_and_the_least_binds() -> None:
    observed = _read(INIT, _pool("8.11", "Worker_TP0"), _pool("7.98", "Worker_TP1"), _pool("8.20", "Worker_TP2"))
    each, least = observed.each("available_kv_bytes"), observed.least("available_kv_bytes")

    assert [(reading.rank, reading.line) for reading in each] == [
        ("Worker_TP0", 2),
        ("Worker_TP1", 3),
        ("Worker_TP2", 4),
    ]
    assert least is not None
    assert (least.rank, least.value) == ("Worker_TP1", round(7.98 * GIB))
    assert observed.first("available_kv_bytes") == each[0]
    assert observed.least("weights_bytes") is None
    assert observed.least("engine_core") is None
    assert observed.notes == ()


def test_the_last_start_up_that_printed_sizes_counts() -> None:
    observed = _read(INIT, _pool("8.11"), TOKENS.format(1000), INIT, _pool("5.00"), TOKENS.format(500), INIT)

    assert [reading.value for reading in observed.each("kv_tokens")] == [500]
    assert observed.notes == ("3 start-ups in this log; the last that printed sizes, from line 4, is kept",)


def test_weights_after_a_pool_begin_another_start_up_without_any_header() -> None:
    observed = _read(_weights("1.00", "P"), TOKENS.format(1000).replace("EngineCore", "P"), _weights("2.00", "P"))

    assert [(reading.name, reading.value) for reading in observed.readings] == [("weights_bytes", 2 * GIB)]


def test_a_value_said_again_more_finely_is_the_same_value() -> None:
    observed = _read(
        "INFO 01-01 00:00:00 model_runner.py:1] Loading model weights took 14.9888 GB",
        "INFO 01-01 00:00:00 worker.py:1] model weights take 14.99GiB; non_torch_memory takes 0.35GiB; "
        "PyTorch activation peak memory takes 1.26GiB; the rest of the memory reserved for KV Cache is 3.81GiB.",
    )
    weights = observed.first("weights_bytes")

    assert weights is not None
    assert (weights.value, weights.line) == (round(14.9888 * GIB), 1)
    assert weights.allows(round(14.98883 * GIB))
    assert not weights.allows(round(14.9890 * GIB))
    assert observed.notes == ()


def test_a_rank_that_contradicts_itself_keeps_the_later_value_and_says_so() -> None:
    observed = _read(_pool("8.11"), _pool("7.00"))

    assert [reading.value for reading in observed.readings] == [7 * GIB]
    assert observed.notes == ("available_kv_bytes of Worker_TP0: lines 1 and 2 differ; line 2 is kept",)


def test_a_log_that_was_cut_within_its_last_number_says_nothing_of_it() -> None:
    line = "INFO [loggers.py:1] Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 297"

    assert _read(_pool("8.11"), line, end="").each("num_gpu_blocks") == ()
    assert [reading.value for reading in _read(line).each("num_gpu_blocks")] == [297]


def test_what_users_paste_into_prompts_is_not_what_the_server_says() -> None:
    prompt = "INFO [logger.py:42] Received request chatcmpl-9: prompt: 'why GPU KV cache size: 1 tokens?', params: None"

    assert [reading.value for reading in _read(TOKENS.format(900), prompt).each("kv_tokens")] == [900]


def test_the_engine_is_the_one_whose_lines_are_most() -> None:
    stray = "[TensorRT-LLM] TensorRT-LLM version: 1.2.0"

    assert _read(stray, INIT, _pool("8.11"), TOKENS.format(5)).engine == "vllm"


def test_what_the_user_stated_goes_before_what_the_engine_resolved() -> None:
    stated = "(APIServer pid=1) INFO non-default args: {'model': 'org/name', 'quantization': None}"
    observed = _read(stated, INIT.replace("model='m'", "model='/snapshots/1', quantization=fp8"))

    assert observed.model == "org/name"
    assert observed.flags == {"model": "org/name", "quantization": "fp8", "seed": 0, "x": True}


@pytest.mark.parametrize("content", [b"", b"nothing of interest\n" * 5, bytes(range(256)) * 40])
def test_a_log_without_a_known_line_is_refused_with_what_was_looked_for(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(content)

    with pytest.raises(
        BadInput, match=r"server\.log: no line of a start-up log is in it; looked for .*vllm: '# GPU blocks:'"
    ):
        read_log(path)


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{_pool('8.11')}\n".encode())))

    assert [reading.value for reading in read_log("-").readings] == [round(8.11 * GIB)]


def test_endless_processes_do_not_fill_the_memory() -> None:
    observed = _read(*(_pool("8.11", f"VllmWorker{n}") for n in range(21_000)))

    assert len(observed.readings) == 20_000
    assert observed.notes == ("more than 20000 values in one start-up; the rest is not read",)
