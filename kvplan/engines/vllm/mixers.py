"""Which attentions and states keep a cache in vLLM's pool, layer by layer, in the order in which vLLM builds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.none import NoCache, SharedCache
from kvplan.parallel import stage_layers

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.model import ModelSpec

T = TypeVar("T")
_SHARED_BLOCKS_FIRST = frozenset({"zamba2"})
"""Model types whose shared attention blocks vLLM builds before the layers that call them."""


@dataclass(frozen=True, slots=True)
class Mixer:
    """One attention (or state) of one layer: `index` of the layer, its stage, whether a draft owns it.

    `position`: its place among those of its layer.
    """

    index: int
    stage: int
    attention: Attention
    draft: bool = False
    position: int = 0


class Same(Generic[T]):
    """A value that equals only itself: hashing a whole model for every look-up would cost more than planning it."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value


def mixers_of(spec: ModelSpec, pp: int, draft: tuple[Mixer, ...]) -> tuple[Mixer, ...]:
    """Every mixer that keeps a cache, in the order in which vLLM builds them; then a draft's, on the last stage."""
    by_layer: Mapping[int, tuple[Attention, ...]] = {i: g.attention for g in spec.layer_groups for i in g.indices}
    stages = stage_layers(spec.num_hidden_layers, pp)
    own = [
        Mixer(index, stage, attention, position=position)
        for stage, indices in enumerate(stages)
        for index in indices
        for position, attention in enumerate(by_layer[index])
        if has_cache(attention)
    ]
    if spec.model_type in _SHARED_BLOCKS_FIRST:
        own.sort(key=lambda m: is_state(m.attention))
    return (*own, *draft)


def is_state(attention: Attention) -> bool:
    """Whether its cache is a recurrent state, which vLLM keeps one to a block."""
    return attention.family == "recurrent"


def has_cache(attention: Attention) -> bool:
    """Whether vLLM registers a cache for it at all."""
    return not isinstance(attention, NoCache | SharedCache)


def window_of(attention: Attention) -> int:
    """The window in tokens, one that the context cannot pass included: vLLM counts its blocks as a window's; else 0."""
    if not isinstance(attention, GroupedQueryAttention):
        return 0
    return attention.sliding_window or attention.idle_window or 0
