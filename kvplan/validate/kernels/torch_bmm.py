"""Batched matrix products around a softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.validate.kernels._torch import TorchForm


def bmm(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """All sessions at once."""
    scores = torch.bmm(rows * scale, entries.transpose(1, 2))
    if seen is not None:
        scores.masked_fill_(~seen, -torch.inf)
    return torch.bmm(scores.softmax(-1), entries[..., :latent_dim])


BACKEND = TorchForm("torch-bmm", bmm)
