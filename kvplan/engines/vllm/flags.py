"""The `vllm serve` flags of a deployment, ready to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment


_DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16"}
"""KV dtypes that vLLM calls by torch's names."""


def flags(deployment: Deployment, max_num_seqs: int) -> str:
    """Only what differs from vLLM's defaults, but always the length and the sessions that the plan is about."""
    return " ".join(_flags(deployment, max_num_seqs))


def _flags(d: Deployment, max_num_seqs: int) -> Iterator[str]:
    p = d.parallel
    axes = (("tensor", p.tp), ("pipeline", p.pp), ("data", p.dp), ("decode-context", p.dcp))
    for axis, ranks in axes:
        if ranks > 1:
            yield f"--{axis}-parallel-size {ranks}"
    if p.ep > 1:
        yield "--enable-expert-parallel"
    yield f"--max-model-len {d.max_model_len}"
    if d.kv_dtype != "auto":
        yield f"--kv-cache-dtype {_DTYPE_NAMES.get(d.kv_dtype, d.kv_dtype)}"
    if d.block_size:
        yield f"--block-size {d.block_size}"
    yield f"--max-num-seqs {max(1, max_num_seqs)}"
    if d.max_num_batched_tokens:
        yield f"--max-num-batched-tokens {d.max_num_batched_tokens}"
    if d.memory_fraction is not None:
        yield f"--gpu-memory-utilization {d.memory_fraction:g}"
    yield from (_flag(name, value) for name, value in d.engine_args.items() if name != "usage")


def _flag(name: str, value: Any) -> str:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    if isinstance(value, Mapping):
        return f"--{option} {shlex.quote(json.dumps(dict(value), default=str))}"
    if isinstance(value, list | tuple):
        return f"--{option} {' '.join(shlex.quote(str(v)) for v in value)}"
    return f"--{option} {shlex.quote(str(value))}"
