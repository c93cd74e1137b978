"""Matrix products around a softmax, one session after another: scores of one session stay in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.validate.kernels._torch import TorchForm


def mm(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """A loop over sessions."""
    output = rows.new_empty(*rows.shape[:2], latent_dim)
    for row, entry, out in zip(rows * scale, entries, output, strict=True):
        scores = torch.mm(row, entry.t())
        if seen is not None:
            scores.masked_fill_(~seen, -torch.inf)
        torch.mm(scores.softmax(-1), entry[:, :latent_dim], out=out)
    return output


BACKEND = TorchForm("torch-mm", mm)
