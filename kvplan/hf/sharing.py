"""Layers that read the K and V of an earlier layer, once the kinds of all layers are known."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.none import SharedCache
from kvplan.errors import BadInput
from kvplan.hf.fields import Fields
from kvplan.hf.softmax import Layer


def share_last(fields: Fields, types: Sequence[str], layers: Sequence[Layer]) -> list[Layer]:
    """Gemma-3n and 4: the last `num_kv_shared_layers` read the last storing layer of their own type."""
    shared = fields.optional_size("num_kv_shared_layers", least=0)
    if shared is None and "num_kv_shared_layers" in fields.defaults:
        raise fields.bad("num_kv_shared_layers", "is no number of layers")
    shared = shared or 0
    first = len(layers) - shared
    if first <= 0:
        raise fields.bad("num_kv_shared_layers", f"leaves no layer of {len(layers)} that stores")
    sources = {types[i]: layers[i] for i in range(first)}
    return [*layers[:first], *(_shared(fields, sources.get(types[i])) for i in range(first, len(layers)))]


def share_neighbours(fields: Fields, _types: Sequence[str], layers: Sequence[Layer]) -> list[Layer]:
    """Hunyuan-Large cross-layer attention: of every `cla_share_factor` layers, the first stores for all."""
    factor = fields.count("cla_share_factor", 1) or 1
    if factor > 1 and not fields.has("use_cla"):
        raise fields.bad("use_cla", f"missing, though a sharing factor of {factor} is stated")
    if not fields.flag("use_cla") or factor == 1:
        return list(layers)
    return [a if i % factor == 0 else _shared(fields, layers[i - i % factor]) for i, a in enumerate(layers)]


def _shared(fields: Fields, source: Layer | None) -> Layer:
    if source is None or not isinstance(source[0], GroupedQueryAttention):
        raise BadInput(f"{fields.where}: num_kv_shared_layers: no storing layer of the same type to share with")
    return (SharedCache(source=source[0]),)
