"""TensorRT-LLM's memory rule: `free_gpu_memory_fraction` of what a profiling run leaves free.

pool = (total - peak) x fraction; the peak holds weights, one forward pass at max_num_tokens and CUDA graphs (a public
log: (119.70 - 113.65 + 0.56) x 0.9 = 5.95 GiB; others 0.9 x 17.83 = 16.05 GiB).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, with_given
from kvplan.units import GIB
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout

DEFAULT_FRACTION = 0.9
HIDDEN_WIDTHS = 8
"""Hidden states of one pass: residual, norm, projections and the MLP's products."""


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
    """The budget of one rank; the fraction not taken is a line of its own."""
    d = deployment
    fraction = d.memory_fraction or DEFAULT_FRACTION
    spent = with_given(
        Budget(
            gpu_total_bytes=d.gpu.memory_bytes,
            requested_bytes=d.gpu.memory_bytes,
            lines=tuple(_lines(d, layout.max_num_batched_tokens)),
            request_rule=f"free_gpu_memory_fraction {fraction:g} of what a profiling run leaves free",
        ),
        given_bytes,
    )
    rest = int(spent.kv_pool_bytes * (1 - fraction))
    left = Line.exact("left_free", rest, f"{1 - fraction:.2g} of what is free after the run")
    return replace(spent, lines=(*spent.lines, left))


def _lines(deployment: Deployment, tokens: int) -> Iterator[Line]:
    """Weights; context, libraries and collectives; one pass of `tokens` tokens with its graphs."""
    size = rank_bytes(deployment.spec, deployment.parallel)
    yield Line.estimate("weights", size, "parameters of the fullest rank", below=0.02 * size, above=0.05 * size)
    yield Line.estimate("non_torch", 1.5 * GIB, "context, libraries and collectives", below=1.0 * GIB, above=2.0 * GIB)
    peak = 2 * tokens * deployment.spec.hidden_size * HIDDEN_WIDTHS + GIB
    yield Line.estimate("activation", peak, "one pass of max_num_tokens and graphs", below=GIB, above=3 * GIB)
