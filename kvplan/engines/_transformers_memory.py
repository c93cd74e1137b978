"""transformers takes what it needs: weights, one step's activations, and the cache as it grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, with_given
from kvplan.units import GIB
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment


def budget(deployment: Deployment, given_bytes: Mapping[str, int]) -> Budget:
    """What remains of the device after weights, context and one step's activations."""
    d = deployment
    size = rank_bytes(d.spec, d.parallel)
    prompt = 4 * d.spec.vocab_size + 2 * 8 * d.spec.hidden_size * d.max_model_len
    lines = (
        Line.estimate("weights", size, "all parameters", below=0.01 * size, above=0.02 * size),
        Line.estimate("non_torch", 0.5 * GIB, "context and libraries", below=0.2 * GIB, above=0.5 * GIB),
        Line.estimate("activation", prompt, "hidden states of the prompt", below=0.5 * prompt, above=2.0 * prompt),
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
