"""Seconds and peak memory that `kvplan reconcile` takes for a log of a gigabyte.

Run `python benchmarks/log_reading.py [GiB]`. The log is a start-up followed by what servers print while they serve. The
budget is 15 s and 200 MB. What the verb does beside reading shows in a log of nothing but the start-up.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path

_START_UP = b"""\
(APIServer pid=1) INFO 08-21 10:00:00 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192}
(EngineCore_DP0 pid=9) INFO 08-21 10:00:05 [core.py:77] Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen3-8B', max_seq_len=8192, enforce_eager=False
(EngineCore_DP0 pid=9) INFO 08-21 10:00:40 [gpu_model_runner.py:4879] Model loading took 15.27 GiB memory and 33.868409 seconds
(EngineCore_DP0 pid=9) INFO 08-21 10:00:50 [gpu_worker.py:462] Available KV cache memory: 57.5 GiB
(EngineCore_DP0 pid=9) INFO 08-21 10:00:50 [kv_cache_utils.py:1316] GPU KV cache size: 418,688 tokens
(EngineCore_DP0 pid=9) INFO 08-21 10:00:50 [kv_cache_utils.py:1321] Maximum concurrency for 8,192 tokens per request: 51.11x
"""  # noqa: E501
_SERVING = b"""\
(APIServer pid=1) INFO:     10.0.12.7:43210 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO 08-21 10:11:59 [loggers.py:257] Engine 000: Avg prompt throughput: 1523.4 tokens/s, Avg generation throughput: 812.9 tokens/s, Running: 31 reqs, Waiting: 0 reqs, GPU KV cache usage: 43.1%, Prefix cache hit rate: 61.0%
[2026-08-21 10:12:02 TP0] Decode batch, #running-req: 3, #token: 12345, token usage: 0.12, cuda graph: True, gen throughput (token/s): 123.45, #queue-req: 0,
"""  # noqa: E501
_PASTED = b"""\
(APIServer pid=1) INFO 08-21 10:12:01 [logger.py:42] Received request chatcmpl-9f: prompt: '<|im_start|>user\\nGPU KV cache size: 1 tokens?', params: SamplingParams(n=1, temperature=0.6), lora_request: None.
"""  # noqa: E501


def write_log(path: Path, gib: float) -> None:
    """A start-up, then requests up to the size; one in sixty quotes a start-up log."""
    block = (_SERVING * 20 + _PASTED) * (2**20 // (20 * len(_SERVING)))
    with path.open("wb") as file:
        file.write(_START_UP)
        while file.tell() < gib * 2**30:
            file.write(block)


def measure(path: Path) -> None:
    """Run the verb and print what it took, in a process of its own so that the peak is this work's."""
    started, cpu_started = time.perf_counter(), time.process_time()
    from kvplan.cli import main as kvplan

    with contextlib.suppress(SystemExit):
        kvplan(["reconcile", str(path), "--output", str(path.with_suffix(".json"))])
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    compared = len(json.loads(path.with_suffix(".json").read_text())["comparisons"])
    size = path.stat().st_size / 2**30
    print(
        f"{size:.2f} GiB: {seconds:.1f} s, {cpu_seconds:.1f} s of CPU, peak {peak_bytes / 1e6:.0f} MB, "
        f"{compared} figures compared"
    )


def main() -> None:
    """Write, reconcile, print."""
    sizes = (0.0, float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        for gib in sizes:
            write_log(path, gib)
            process = multiprocessing.get_context("spawn").Process(target=measure, args=(path,))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
