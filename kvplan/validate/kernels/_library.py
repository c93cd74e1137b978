"""What kernel libraries have in common: they need CUDA, their package, and bf16 entries in blocks."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from kvplan.validate.kernels import Problem


def absent(package: str) -> str | None:
    """Why a CUDA library cannot run on this machine."""
    if find_spec(package) is None:
        return f"{package} is not installed"
    return None if torch.cuda.is_available() else f"{package} needs a CUDA device"


def refusal_of(problem: Problem, block_tokens: int | None = None) -> str | None:
    """Why a library that reads bf16 blocks (of one size, if given) cannot run a problem."""
    cache = problem.cache
    if cache.record.kv_dtype != "bf16":
        return f"reads a bf16 cache, not {cache.record.kv_dtype}"
    if block_tokens and cache.block_tokens != block_tokens:
        return f"reads blocks of {block_tokens} tokens, not {cache.block_tokens}"
    return None
