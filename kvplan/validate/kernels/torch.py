"""Absorbed MLA decode in plain torch, on CPU and CUDA: three forms, of which the fastest differs by machine and shape.

Heads and query tokens are rows of one matrix against the shared entries: [rows, 576] x [576, context]. On a CPU,
`scaled_dot_product_attention` has a flash kernel only where K and V are equally wide, so V is K and the rotary part
is cut off the output. On CUDA the memory-efficient kernel takes 576 / 512 as they are. Each is forced, so that
torch's unfused fallback is an error instead of a wrong measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kvplan.validate.kernels import Launch, Problem
from kvplan.validate.paged import PagedCache


def bmm(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """Batched matrix products around a softmax."""
    scores = torch.bmm(rows * scale, entries.transpose(1, 2))
    if seen is not None:
        scores.masked_fill_(~seen, -torch.inf)
    return torch.bmm(scores.softmax(-1), entries[..., :latent_dim])


def mm(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """The same, one session after another."""
    output = rows.new_empty(*rows.shape[:2], latent_dim)
    for row, entry, out in zip(rows * scale, entries, output, strict=True):
        scores = torch.mm(row, entry.t())
        if seen is not None:
            scores.masked_fill_(~seen, -torch.inf)
        torch.mm(scores.softmax(-1), entry[:, :latent_dim], out=out)
    return output


def sdpa(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """torch's fused attention with rows as queries of a single head."""
    on_cpu = rows.device.type == "cpu"
    kernel = SDPBackend.FLASH_ATTENTION if on_cpu else SDPBackend.EFFICIENT_ATTENTION
    keys = entries[:, None]
    values = keys if on_cpu else keys[..., :latent_dim]
    with sdpa_kernel(kernel):
        output = scaled_dot_product_attention(rows[:, None], keys, values, attn_mask=seen, scale=scale)
    return output[:, 0, :, :latent_dim]


Form = Callable[[Tensor, Tensor, Tensor | None, float, int], Tensor]


def _rows_that_see(query_tokens: int, heads: int, tokens: int, device: torch.device) -> Tensor | None:
    """Which of `tokens` entries each row sees, bool [query_tokens x heads, tokens]; None where all see all."""
    if query_tokens == 1:
        return None
    ends = torch.arange(tokens - query_tokens + 1, tokens + 1, device=device)
    return torch.arange(tokens, device=device) < ends.repeat_interleave(heads)[:, None]


def _reader(cache: PagedCache, dtype: torch.dtype) -> Callable[[], Tensor]:
    """What fetches the entries [batch, tokens, width] for each step: a view, or gather and dequantise."""
    tokens = int(cache.lengths.max())
    if cache.in_order and cache.record.kv_dtype == "bf16" and dtype == torch.bfloat16:
        entries = cache.record.unpack(cache.blocks)[:, :tokens]
        return lambda: entries
    return lambda: cache.record.unpack(cache.gather()[:, :tokens]).to(dtype)


@dataclass(frozen=True, slots=True)
class TorchForm:
    """One form as a backend."""

    name: str
    form: Form

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
        read = _reader(problem.cache, problem.query.dtype)
        seen = _rows_that_see(query_tokens, heads, int(problem.cache.lengths.max()), rows.device)

        def launch() -> Tensor:
            output = self.form(rows, read(), seen, problem.softmax_scale, problem.latent_dim)
            return output.view(batch, query_tokens, heads, problem.latent_dim)

        return launch


BACKENDS = (TorchForm("torch-bmm", bmm), TorchForm("torch-mm", mm), TorchForm("torch-sdpa", sdpa))
