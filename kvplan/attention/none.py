"""Layers that keep nothing: no attention at all, or the K and V of another layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.cache import CacheTensor
from kvplan.matrix import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCache:
    """A layer without attention; `reason` says what it is instead."""

    family: ClassVar[str] = "none"
    kind: Literal["none"] = "none"
    reason: Literal["mlp", "moe", "no_op attention", "linear replacement"]

    @property
    def layer_type(self) -> str:
        """none(reason)."""
        return f"none({self.reason})"

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Nothing."""
        return ()

    def weights(self, _hidden_size: int) -> Iterator[Weight]:
        """Nothing; what the layer is instead counts as its MLP."""
        return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCache:
    """Attention that reads the cache of an earlier layer and stores none: K and V (Gemma-3n `num_kv_shared_layers`,
    cross-layer attention), or the latent (`kv_source_layers`)."""

    layer_type: ClassVar[str] = "none(kv shared)"
    family: ClassVar[str] = "none"
    kind: Literal["shared"] = "shared"
    source: GroupedQueryAttention | MultiHeadLatentAttention

    @property
    def num_attention_heads(self) -> int:
        """Query heads, as in the source layer."""
        return self.source.num_attention_heads

    def tensors(self) -> tuple[CacheTensor, ...]:
        """Nothing of its own."""
        return ()

    def weights(self, hidden_size: int) -> Iterator[Weight]:
        """Queries and output only; of a latent, all that the source layer has."""
        if isinstance(self.source, GroupedQueryAttention):
            return self.source.query_weights(hidden_size)
        return self.source.weights(hidden_size)
