"""FlashMLA's dense decode (https://github.com/deepseek-ai/FlashMLA): sm_90, bf16, blocks of 64."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from kvplan.validate.kernels import Launch, Problem
from kvplan.validate.kernels._library import absent, refusal_of


@dataclass(frozen=True, slots=True)
class FlashMla:
    """The library as a backend."""

    name: str = "flash_mla"

    def missing(self) -> str | None:
        """The package, and Hopper: there is no dense decode for other architectures."""
        reason = absent("flash_mla")
        if reason is None and torch.cuda.get_device_capability()[0] != 9:
            return "flash_mla decodes dense MLA on sm_90 only"
        return reason

    def refusal(self, problem: Problem) -> str | None:
        """Blocks of 64 bf16 entries."""
        return refusal_of(problem, block_tokens=64)

    def prepare(self, problem: Problem) -> Launch:
        """The schedule depends on lengths and heads; the library makes it in the first launch, which runs here."""
        library, cache = import_module("flash_mla"), problem.cache
        per_key = problem.query.shape[1] * problem.query.shape[2]
        schedule, splits = library.get_mla_metadata(cache.lengths, per_key, 1)
        entries = cache.record.unpack(cache.blocks)[:, :, None]

        def launch() -> Tensor:
            output: Tensor = library.flash_mla_with_kvcache(
                problem.query, entries, cache.block_table, cache.lengths, problem.latent_dim, schedule, splits,
                softmax_scale=problem.softmax_scale, causal=True,
            )[0]  # fmt: skip
            return output

        launch()
        return launch

    def scratch_bytes(self, problem: Problem) -> None:
        """The library does not tell."""


BACKEND = FlashMla()
