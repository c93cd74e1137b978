"""FlashInfer's paged MLA (https://docs.flashinfer.ai/api/mla.html): bf16, any block size; picks its own backend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

import torch
from torch import Tensor

from kvplan.units import MIB
from kvplan.validate.kernels import Launch, Problem
from kvplan.validate.kernels._library import absent, refusal_of


@lru_cache(maxsize=1)
def workspace() -> Tensor:
    """The 128 MiB that the library's documentation asks for; launches follow one another, so all share it."""
    return torch.empty(128 * MIB, dtype=torch.int8, device="cuda")


@dataclass(frozen=True, slots=True)
class FlashInfer:
    """The library as a backend."""

    name: str = "flashinfer"

    def missing(self) -> str | None:
        """The package."""
        return absent("flashinfer")

    def refusal(self, problem: Problem) -> str | None:
        """bf16 entries."""
        return refusal_of(problem)

    def prepare(self, problem: Problem) -> Launch:
        """Plan once: indices of all blocks that sessions hold, one session after another."""
        wrapper = import_module("flashinfer.mla").BatchMLAPagedAttentionWrapper(workspace(), backend="auto")
        cache, latent_dim = problem.cache, problem.latent_dim
        batch, query_tokens, heads, width = problem.query.shape
        starts = torch.arange(batch + 1, dtype=torch.int32, device=cache.lengths.device)
        wrapper.plan(
            starts * query_tokens, starts * cache.block_table.shape[1], cache.block_table.flatten(), cache.lengths,
            heads, latent_dim, width - latent_dim, cache.block_tokens, True, problem.softmax_scale,
            torch.bfloat16, torch.bfloat16,
        )  # fmt: skip
        rows = problem.query.flatten(0, 1)
        content, rotary = rows[..., :latent_dim].contiguous(), rows[..., latent_dim:].contiguous()
        entries = cache.record.unpack(cache.blocks)

        def launch() -> Tensor:
            output: Tensor = wrapper.run(content, rotary, entries[..., :latent_dim], entries[..., latent_dim:])
            return torch.unflatten(output, 0, (batch, query_tokens))

        return launch

    def scratch_bytes(self, problem: Problem) -> None:
        """The library does not tell."""


BACKEND = FlashInfer()
