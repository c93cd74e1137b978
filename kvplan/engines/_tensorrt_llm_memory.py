"""TensorRT-LLM's memory rule: `free_gpu_memory_fraction` of what a profiling run leaves free.

pool = (total - peak) x fraction; the peak holds weights, one forward pass at max_num_tokens and CUDA graphs (a public
log: (119.70 - 113.65 + 0.56) x 0.9 = 5.95 GiB; others 0.9 x 17.83 = 16.05 GiB).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, override
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout

GIB = 2**30
DEFAULT_FRACTION = 0.9


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
    """The budget of one rank; the fraction not taken is a line of its own."""
    d = deployment
    fraction = d.memory_fraction or DEFAULT_FRACTION
    size = rank_bytes(d.spec, d.parallel)
    tokens = layout.max_num_batched_tokens
    lines = override(
        (
            Line.estimate("weights", size, "parameters of the fullest rank", below=0.02 * size, above=0.05 * size),
            Line.estimate("non_torch", 1.5 * GIB, "context, libraries and collectives", below=1.0 * GIB, above=2.0 * GIB),
            Line.estimate(
                "activation", 2 * tokens * d.spec.hidden_size * 8 + GIB, "one pass of max_num_tokens and graphs",
                below=GIB, above=3 * GIB,
            ),
        ),
        given_bytes,
    )  # fmt: skip
    rest = d.gpu.memory_bytes - sum(line.bytes for line in lines)
    left = Line.exact("left_free", max(0, int(rest * (1 - fraction))), f"{1 - fraction:.2g} of what is free after loading")
    return Budget(
        gpu_total_bytes=d.gpu.memory_bytes,
        requested_bytes=d.gpu.memory_bytes,
        lines=(*lines, replace(left, origin="exact")),
        request_rule=f"free_gpu_memory_fraction {fraction:g} of what a profiling run leaves free",
    )
