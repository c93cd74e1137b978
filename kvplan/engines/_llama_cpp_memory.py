"""llama.cpp has no memory fraction: model, context and compute buffers must fit, with 1 GiB left free by `--fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, with_given
from kvplan.units import GIB
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout

MARGIN_BYTES = GIB
"""--fit-target: 1,024 MiB left free on each device."""


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
    """The budget of the device that holds most."""
    d = deployment
    size = rank_bytes(d.spec, d.parallel)
    logits = 4 * d.spec.vocab_size * layout.max_num_batched_tokens
    hidden = 2 * 4 * d.spec.hidden_size * layout.max_num_batched_tokens
    lines = (
        Line.estimate(
            "weights",
            size,
            "the checkpoint's dtype; give --weights for a GGUF file",
            below=0.05 * size,
            above=0.05 * size,
        ),
        Line.estimate(
            "compute_buffer",
            logits + hidden,
            "logits and activations of one ubatch, fp32",
            below=0.3 * logits,
            above=logits,
        ),
        Line.estimate("non_torch", 0.4 * GIB, "driver context and libraries", below=0.2 * GIB, above=0.3 * GIB),
        Line.exact("margin", MARGIN_BYTES, "--fit-target leaves 1,024 MiB free"),
    )
    return with_given(
        Budget(
            gpu_total_bytes=d.gpu.memory_bytes,
            requested_bytes=d.gpu.memory_bytes,
            lines=lines,
            request_rule="all of the device",
        ),
        given_bytes,
    )
