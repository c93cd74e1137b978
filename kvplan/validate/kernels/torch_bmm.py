"""Batched matrix products around a softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.validate.kernels import Problem
from kvplan.validate.kernels._torch import TorchForm


def bmm(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """All sessions at once."""
    scores = torch.bmm(rows * scale, entries.transpose(1, 2))
    if seen is not None:
        scores.masked_fill_(~seen, -torch.inf)
    return torch.bmm(scores.softmax(-1), entries[..., :latent_dim])


def bmm_bytes(problem: Problem) -> int | None:
    """On CUDA, the scaled rows with the scores, or the scores with their softmax and the output, all bf16: cuBLAS reads
    the latent where it lies. None on a CPU, where oneDNN copies it into a workspace of its own size."""
    batch, query_tokens, heads, width = problem.query.shape
    if problem.query.device.type != "cuda":
        return None
    rows, tokens = batch * query_tokens * heads, int(problem.cache.lengths.max())
    return 2 * rows * (tokens + max(width, tokens + problem.latent_dim))


BACKEND = TorchForm("torch-bmm", bmm, bmm_bytes)
