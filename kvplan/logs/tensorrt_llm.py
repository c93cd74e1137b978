"""What TensorRT-LLM prints when it starts: the TensorRT backend (0.8 to 0.2x) and the PyTorch backend (1.x).

The PyTorch backend makes a small pool first, runs it to find the peak of memory, and makes the final pool after; both
announce themselves in the same words, so the last announcement holds.
"""

from __future__ import annotations

from kvplan.logs.base import LogFormat
from kvplan.logs.observed import Pool
from kvplan.logs.patterns import Pattern
from kvplan.logs.startup import Startup, Statement

_ARGUMENTS = (
    Pattern(b"version", "TensorRT-LLM version: <version:word>", phase="load"),
    Pattern(b"version", "TensorRT LLM version: <version:word>", phase="load"),
    Pattern(b"args", "TensorRT-LLM engine args: {", kind="stated"),
    Pattern(b"_tokens=", "model=", kind="llm args"),
    Pattern(
        b"_tokens=",
        "max_seq_len=<max_seq_len:count>, max_num_requests=<max_num_requests:count>, "
        "max_num_tokens=<max_num_tokens:count>",
        kind="flags",
    ),
)

_PROFILE = (
    Pattern(b"iB", "after loading model weights (inside torch) in memory usage profiling: <weights:gib> GiB"),
    Pattern(b"iB", "during inference (inside torch) in memory usage profiling: <activation:gib> GiB"),
    Pattern(b"iB", "used outside torch ...in memory usage profiling: <non_torch:gib> GiB"),
    Pattern(b"iB", "Peak memory during memory usage profiling (torch + non-torch): <peak:gib> GiB"),
    Pattern(b"iB", "available KV cache memory when calculating max tokens: <available_kv:gib> GiB"),
    Pattern(b"iB", "fraction is set <free_gpu_memory_fraction:number>, kv size is <per_token:bytes>."),
    Pattern(b"iB", "fraction is set <free_gpu_memory_fraction:number>, kv size per token is <per_token:bytes>."),
    Pattern(b"iB", "device total memory <gpu_total:gib> GiB"),
    Pattern(b"iB", "tmp kv_mem <temporary_kv:gib> GiB"),
    Pattern(b"iB", "temporary kv cache memory during profiling <temporary_kv:gib> GiB"),
)

_POOLS = (
    Pattern(
        b"block",
        "Max KV cache blocks per sequence: <sequence_blocks:count> [window size=<window:count>], "
        "tokens per block=<block_size:count>, primary blocks=<blocks:count>, ",
        kind="window",
    ),
    Pattern(b"block", "Number of tokens per block: <block_size:count>."),
    Pattern(b"block", "Number of blocks in KV cache primary pool: <num_gpu_blocks:count>,"),
    Pattern(
        b"iB",
        "Allocated <allocated_kv:gib> GiB for max tokens in paged KV cache (<kv_tokens:count>)",
        kind="allocated",
        phase="pool",
    ),
    Pattern(b"Using ", "Using <kv_tokens:count> tokens in paged KV cache"),
)


class TensorrtLlmStartup(Startup):
    """The pools of the last allocation."""

    def __init__(self) -> None:
        super().__init__()
        self._allocated: set[str] = set()

    def take(self, said: Statement) -> None:
        """Lines of pools and of arguments that pydantic prints; the rest as everywhere."""
        match said.pattern.kind:
            case "window":
                self._take_window(said)
            case "allocated":
                self._allocated.add(said.rank)
                for name in said.values:
                    self.readings[name, said.rank] = said.reading(name)
            case "llm args":
                self.take_arguments(said, self.stated, separator=" ")
            case _:
                super().take(said)

    def _take_window(self, said: Statement) -> None:
        """One pool of blocks; the first after a rank's allocation begins its next allocation."""
        if said.rank in self._allocated:
            self._allocated.remove(said.rank)
            self.pools = [pool for pool in self.pools if pool.rank != said.rank]
        blocks, block_size = said.whole("blocks"), said.whole("block_size")
        self.add_pool(
            Pool(
                kind="window",
                line=said.line,
                rank=said.rank,
                slots=(blocks or 0) * (block_size or 0),
                blocks=blocks,
                block_size=block_size,
                window_tokens=said.whole("window"),
            )
        )


LOG_FORMAT = LogFormat(
    engine="tensorrt-llm",
    patterns=(*_ARGUMENTS, *_PROFILE, *_POOLS),
    model_keys=("model", "model_path"),
    startup=TensorrtLlmStartup,
)
