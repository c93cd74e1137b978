"""FlashAttention-3's MLA path (https://github.com/Dao-AILab/flash-attention, hopper/flash_attn_interface.py): sm_90,
bf16. The rotary parts are Q and K, the latent is V, and the content part of the query goes beside them as `qv`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from kvplan.validate.kernels import Launch, Problem
from kvplan.validate.kernels._library import absent, refusal_of


@dataclass(frozen=True, slots=True)
class FlashAttention3:
    """The library as a backend."""

    name: str = "flash_attn_3"

    def missing(self) -> str | None:
        """The package, and Hopper."""
        reason = absent("flash_attn_interface")
        if reason is None and torch.cuda.get_device_capability()[0] != 9:
            return "flash_attn_interface runs on sm_90 only"
        return reason

    def refusal(self, problem: Problem) -> str | None:
        """bf16 entries."""
        return refusal_of(problem)

    def prepare(self, problem: Problem) -> Launch:
        """Latent and rotary key are two views of one cache."""
        library, cache, latent_dim = import_module("flash_attn_interface"), problem.cache, problem.latent_dim
        entries = cache.record.unpack(cache.blocks)[:, :, None]
        content, rotary = problem.query[..., :latent_dim], problem.query[..., latent_dim:].contiguous()
        content = content.contiguous()

        def launch() -> Tensor:
            output: Tensor = library.flash_attn_with_kvcache(
                q=rotary, k_cache=entries[..., latent_dim:], v_cache=entries[..., :latent_dim], qv=content,
                cache_seqlens=cache.lengths, page_table=cache.block_table,
                softmax_scale=problem.softmax_scale, causal=True,
            )  # fmt: skip
            return output

        return launch

    def scratch_bytes(self, problem: Problem) -> None:
        """The library does not tell."""


BACKEND = FlashAttention3()
