"""Sizes of what encoders are made of: dense layers and stacks of plain transformer layers."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.matrix import Part
from kvplan.model import OtherWeight


def dense(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """Elements of a dense layer; of a convolution with `inputs` the channels of its whole kernel."""
    return (inputs + bias) * outputs


def stack(
    part: Part,
    *,
    layers: int,
    width: int,
    inner: int,
    heads: int,
    head_width: int | None = None,
    gated: bool = False,
    attention_biases: int = 4,
    mlp_bias: bool = True,
    norms: int = 2,
    norm_vectors: int = 2,
    more: int = 0,
) -> Iterator[OtherWeight]:
    """`layers` of self attention (`head_width` over all heads) and an MLP of `inner`; matrices share out over heads.

    `attention_biases`: how many of Q, K, V and output have one. `norm_vectors`: 2 for a LayerNorm, 1 for an RMS norm.
    `more`: other elements in a layer.
    """
    projections = 3 if gated else 2
    matrices = 4 * width * (head_width or width) + projections * width * inner
    vectors = attention_biases * width + norms * norm_vectors * width + more
    if mlp_bias:
        vectors += (projections - 1) * inner + width
    yield OtherWeight(part=part, numel=layers * matrices, units=heads)
    yield OtherWeight(part=part, numel=layers * vectors)
