"""What the torch forms share: heads and query tokens are rows of one matrix against entries that all of them see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvplan.validate.kernels import Launch, Problem
from kvplan.validate.paged import PagedCache

Form = Callable[[Tensor, Tensor, Tensor | None, float, int], Tensor]
"""(rows [batch, rows, width], entries [batch, tokens, width], what each row sees [rows, tokens] or None, softmax
scale, latent width) -> [batch, rows, latent]."""


def rows_that_see(query_tokens: int, heads: int, tokens: int, device: torch.device) -> Tensor | None:
    """Which of `tokens` entries each row sees, bool [query_tokens x heads, tokens]; None where all see all."""
    if query_tokens == 1:
        return None
    ends = torch.arange(tokens - query_tokens + 1, tokens + 1, device=device)
    return torch.arange(tokens, device=device) < ends.repeat_interleave(heads)[:, None]


def reader_bytes(cache: PagedCache) -> tuple[int, int]:
    """(at the peak, kept until the end) of what fetching and dequantising the entries allocates."""
    tokens = len(cache.lengths) * int(cache.lengths.max())
    gathered_bytes = 0 if cache.in_order else cache.gathered_bytes
    unpacked_bytes = 0 if cache.record.is_stored_in_bf16 else 2 * cache.record.width * tokens
    kept_bytes = gathered_bytes if cache.record.is_stored_in_bf16 else unpacked_bytes
    return gathered_bytes + cache.record.unpack_scratch_bytes(tokens), kept_bytes


def unknown_bytes(problem: Problem) -> None:
    """The scratch of a form whose library does not tell: oneDNN's and cuBLAS's workspaces."""


@dataclass(frozen=True, slots=True)
class TorchForm:
    """One form as a backend. `form_bytes`: what it allocates beside the entries."""

    name: str
    form: Form
    form_bytes: Callable[[Problem], int | None] = unknown_bytes

    def missing(self) -> None:
        """Nothing: torch is here."""

    def refusal(self, problem: Problem) -> str | None:
        """Sessions must be equally long: entries are one rectangular tensor."""
        lengths = problem.cache.lengths
        return None if bool((lengths == lengths[0]).all()) else "sessions differ in length"

    def prepare(self, problem: Problem) -> Launch:
        """Entries as a view where they lie in order in bf16; otherwise each step gathers and dequantises them."""
        batch, query_tokens, heads, _ = problem.query.shape
        rows = problem.query.flatten(1, 2)
        record, read = problem.cache.record, problem.cache.reader()
        seen = rows_that_see(query_tokens, heads, int(problem.cache.lengths.max()), rows.device)

        def launch() -> Tensor:
            output = self.form(rows, record.unpack(read()), seen, problem.softmax_scale, problem.latent_dim)
            return output.view(batch, query_tokens, heads, problem.latent_dim)

        return launch

    def scratch_bytes(self, problem: Problem) -> int | None:
        """Entries that are gathered and dequantised, and the form's own; None where that is unknown."""
        form_bytes = self.form_bytes(problem)
        if form_bytes is None:
            return None
        peak_bytes, kept_bytes = reader_bytes(problem.cache)
        return max(peak_bytes, kept_bytes + form_bytes)
