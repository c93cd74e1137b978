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


def _reader_bytes(cache: PagedCache) -> tuple[int, int]:
    """(at the peak, kept until the end) of what the reader allocates."""
    tokens = len(cache.lengths) * int(cache.lengths.max())
    gathered_bytes = 0 if cache.in_order else cache.gathered_bytes
    unpacked_bytes = 0 if cache.record.is_stored_in_bf16 else 2 * cache.record.width * tokens
    kept_bytes = gathered_bytes if cache.record.is_stored_in_bf16 else unpacked_bytes
    return gathered_bytes + cache.record.unpack_scratch_bytes(tokens), kept_bytes


_CPU_ROWS, _CPU_KEYS, _CPU_PACKED_ROWS = 32, 512, 64


def _sdpa_bytes(problem: Problem) -> int | None:
    """Output and scratch of the fused kernels; None where the CPU's kernel may repack the whole cache, which depends on
    the processor (64 rows and more).

    CPU: log-sum-exp, and for each thread a tile of 32 rows against 512 keys: scores, maximum, sum and output in
    float32, the scores once more in bf16 (ATen/native/cpu/FlashAttentionKernel.cpp). CUDA: a float32 accumulator as
    large as the output (ATen/native/transformers/cuda/mem_eff_attention, outputs wider than 128).
    """
    batch, query_tokens, heads, width = problem.query.shape
    rows = query_tokens * heads
    if problem.query.device.type == "cuda":
        return batch * rows * problem.latent_dim * (2 + 4)
    tile_rows, keys = min(rows, _CPU_ROWS), min(int(problem.cache.lengths.max()), _CPU_KEYS)
    tile_bytes = 4 * tile_rows * (keys + 2 + width) + 2 * tile_rows * keys
    known_bytes = batch * rows * (2 * width + 4) + torch.get_num_threads() * tile_bytes
    return known_bytes if rows < _CPU_PACKED_ROWS else None


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
        record, read = problem.cache.record, problem.cache.reader()
        seen = _rows_that_see(query_tokens, heads, int(problem.cache.lengths.max()), rows.device)

        def launch() -> Tensor:
            output = self.form(rows, record.unpack(read()), seen, problem.softmax_scale, problem.latent_dim)
            return output.view(batch, query_tokens, heads, problem.latent_dim)

        return launch

    def scratch_bytes(self, problem: Problem) -> int | None:
        """Gathered and dequantised entries beside the fused kernel; oneDNN's and cuBLAS's workspaces are unknown."""
        kernel_bytes = _sdpa_bytes(problem) if self.form is sdpa else None
        if kernel_bytes is None:
            return None
        peak_bytes, kept_bytes = _reader_bytes(problem.cache)
        return max(peak_bytes, kept_bytes + kernel_bytes)


FUSED = TorchForm("torch-sdpa", sdpa)
BACKENDS = (TorchForm("torch-bmm", bmm), TorchForm("torch-mm", mm), FUSED)
