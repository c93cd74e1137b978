"""Groups: which layers share a block table, and the bytes of one block of the pool that all groups draw from.

`v1/core/kv_cache_planning.py` of 0.33 (`kv_cache_utils.py` before): layers that need the same slots form one group;
layers that do not are cut into groups of equal page bytes; DeepSeek-V4's are packed side by side in one block.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import lcm
from operator import itemgetter
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, round_up
from kvplan.engines.vllm.pages import Layer, PageSpec
from kvplan.errors import Unsupported

if TYPE_CHECKING:
    from kvplan.engines.vllm.versions import Rules


@dataclass(frozen=True, slots=True)
class Group:
    """Layers with one block table. Their pages may differ in bytes, never in the slots that they need."""

    layers: tuple[Layer, ...]

    @property
    def pages(self) -> PageSpec:
        """What one layer of it, the first, looks like."""
        return self.layers[0].pages

    def page_bytes(self, stage: int) -> int:
        """Bytes of one block over the layers of one pipeline stage, without alignment."""
        return sum(layer.pages.page_bytes for layer in self.layers if layer.stage == stage)

    def own_bytes(self, stage: int) -> int:
        """The same before siblings padded its pages."""
        return sum(layer.pages.own_bytes for layer in self.layers if layer.stage == stage)

    def at(self, stage: int) -> Group:
        """The part of it on one stage."""
        return Group(tuple(layer for layer in self.layers if layer.stage == stage))

    @property
    def is_mixed(self) -> bool:
        """Whether its layers differ in page bytes."""
        return len({layer.pages.page_bytes for layer in self.layers}) > 1


def form_groups(layers: Sequence[Layer], rules: Rules, *, hybrid_manager: bool, packed: bool) -> tuple[Group, ...]:
    """All layers of all stages -> groups. `hybrid_manager` False: windows and chunks hold every token."""
    if not hybrid_manager or not rules.hybrid_groups:
        layers = _promoted(layers)
    if not layers:
        return ()
    if _one_kind(layers, rules):
        return (Group(tuple(layers)),)
    if not hybrid_manager:
        raise Unsupported("Failed to promote local KV cache specs to one unified type.")
    if packed:
        return _packed(layers, rules)
    try:
        unified = _unified(layers, rules)
    except Unsupported:
        grown = _promoted(layers)
        if not (rules.pads_attention_pages and _has_latent_and_window(layers) and _one_kind(grown, rules)):
            raise
        return (Group(tuple(grown)),)
    return _equal_groups(unified, rules)


def _one_kind(layers: Sequence[Layer], rules: Rules) -> bool:
    """Whether one group may hold them all; before 0.11 their pages had to be equal too."""
    if len({layer.pages.kind for layer in layers}) > 1:
        return False
    if rules.mixed_pages_in_one_group or rules.engine_core == "v0":
        return True
    return len({layer.pages.page_bytes for layer in layers}) == 1


def _promoted(layers: Sequence[Layer]) -> Sequence[Layer]:
    """Windows and chunks beside full attention hold every token; alone they stay what they are."""
    full_blocks = {layer.pages.block_size for layer in layers if layer.pages.growth == "full"}
    if not full_blocks:
        return layers
    block = full_blocks.pop() if len(full_blocks) == 1 else None
    return [
        replace(layer, pages=layer.pages.grown(block)) if layer.pages.growth in ("sliding", "chunked") else layer
        for layer in layers
    ]


def _has_latent_and_window(layers: Sequence[Layer]) -> bool:
    latent = any(layer.pages.latent and layer.pages.growth == "full" for layer in layers)
    return latent and any(layer.pages.growth == "sliding" and not layer.pages.latent for layer in layers)


def _unified(layers: Sequence[Layer], rules: Rules) -> Sequence[Layer]:
    """Equal pages for all: smaller ones take more tokens to a block, or padding where tokens do not divide."""
    largest = max(layer.pages.page_bytes for layer in layers)
    if all(layer.pages.page_bytes == largest for layer in layers):
        return layers
    if not rules.scales_small_pages:
        raise Unsupported(f"vLLM {rules.version}: layers with pages of different bytes are not served")
    return [replace(layer, pages=_as_large(layer, largest, rules)) for layer in layers]


def _as_large(layer: Layer, largest: int, rules: Rules) -> PageSpec:
    pages = layer.pages
    ratio, rest = divmod(largest, pages.page_bytes)
    if pages.is_state:
        return pages.padded_to(largest)
    if rest == 0:
        return pages.with_block((pages.block_size or 1) * ratio)
    if pages.latent or not rules.pads_attention_pages:
        raise Unsupported(
            f"vLLM: Layer {layer.name}: page size is not divisible by the maximum page size and cannot be padded. "
            "Padding is only supported for non-MLA attention layers."
        )
    return pages.padded_to(largest)


def _buckets(layers: Iterable[Layer]) -> list[list[Layer]]:
    alike: defaultdict[PageSpec, list[Layer]] = defaultdict(list)
    for layer in layers:
        alike[layer.pages].append(layer)
    return list(alike.values())


def _equal_groups(layers: Sequence[Layer], rules: Rules) -> tuple[Group, ...]:
    """Groups of as many layers as the rarest kind has, or as the commonest where that pads little."""
    buckets = _buckets(layers)
    fewest, most = min(map(len, buckets)), max(map(len, buckets))
    size = most if most < fewest * rules.group_padding else fewest
    groups = []
    for bucket in buckets:
        count = cdiv(len(bucket), size)
        if rules.groups_over_stages:
            groups += [Group(tuple(bucket[i::count])) for i in range(count)]
        else:
            groups += [Group(tuple(bucket[i : i + size])) for i in range(0, len(bucket), size)]
    return tuple(groups)


def _repeats(layers: Iterable[Layer]) -> int:
    """How often a pattern of one layer of each page size repeats."""
    return max(Counter(layer.pages.page_bytes for layer in layers).values())


def _split(bucket: Sequence[Layer], count: int) -> list[Group]:
    """A bucket in `count` groups, each with every n-th layer of each page size."""
    by_size: defaultdict[int, list[Layer]] = defaultdict(list)
    for layer in bucket:
        by_size[layer.pages.page_bytes].append(layer)
    patterns = list(zip(*by_size.values(), strict=False))
    return [Group(tuple(layer for pattern in patterns[i::count] for layer in pattern)) for i in range(count)]


def least_padding(values: Sequence[int], least: int) -> int:
    """The chunk size from `least` on that rounds all `values` up with the least padding; ties take the larger."""
    sizes = range(least, max(values) + 1)
    return min(sizes, key=lambda d: (sum(-v % d for v in values), -d), default=least)


def _packed(layers: Sequence[Layer], rules: Rules) -> tuple[Group, ...]:
    """DeepSeek-V4: buckets of one kind; those whose page sizes repeat evenly are cut to the same number of repeats."""
    kinds: defaultdict[object, list[Layer]] = defaultdict(list)
    for layer in layers:
        kinds[layer.pages.kind].append(layer)
    full = [b for b in kinds.values() if b[0].pages.growth == "full"]
    rest = [b for b in kinds.values() if b[0].pages.growth != "full"]
    if rules.packing in ("tuples", "slots"):
        rest = [_padded_like(b, full[0]) for b in rest]
    if rules.full_group_first:
        repeats = least_padding([_repeats(b) for b in (*full, *rest)], _repeats(full[0]))
        return (Group(tuple(full[0])), *(g for b in rest for g in _split(b, cdiv(_repeats(b), repeats))))
    balanced = [b for b in kinds.values() if _is_balanced(b)]
    least = max((_repeats(b) for b in balanced if Group(tuple(b)).is_mixed), default=0)
    repeats = least_padding([_repeats(b) for b in balanced], least) if least else 0
    counts = [cdiv(_repeats(b), repeats) if repeats and b in balanced else 0 for b in kinds.values()]
    return tuple(
        group
        for bucket, count in zip(kinds.values(), counts, strict=True)
        for group in (_split(bucket, count) if count else [Group(tuple(bucket))])
    )


def _is_balanced(bucket: Sequence[Layer]) -> bool:
    return len(set(Counter(layer.pages.page_bytes for layer in bucket).values())) == 1


def _padded_like(bucket: Sequence[Layer], full: Sequence[Layer]) -> list[Layer]:
    """Each page padded to the next larger page of the full group (before 0.27)."""
    sizes = sorted({layer.pages.page_bytes for layer in full})
    return [
        replace(layer, pages=layer.pages.padded_to(next((s for s in sizes if s >= layer.pages.page_bytes), 0)))
        for layer in bucket
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBytes:
    """Bytes of one block of the pool: on every stage that has a cache, on the fullest, and as start-up counts them.

    `padding`: what one block leaves unused on the fullest stage, for each group that may hold it.
    """

    stages: tuple[int, ...]
    of_stages: tuple[int, ...]
    largest: int
    checked: int
    fullest_stage: int
    padding: tuple[int, ...]


def block_bytes(groups: Sequence[Group], stages: tuple[int, ...], rules: Rules, *, packed: bool) -> BlockBytes:
    """Every worker of a stage counts the layers that it has."""
    parts = [[g.at(s) for g in groups] for s in stages]
    sizes = tuple(bytes_per_block(part, rules, packed=packed) for part in parts)
    largest, fullest = max(zip(sizes, stages, strict=True), default=(0, 0), key=itemgetter(0))
    return BlockBytes(
        stages=stages,
        of_stages=sizes,
        largest=largest,
        checked=max(map(_tuples_bytes, parts)) if packed and rules.packed_fit == "tuples" else largest,
        fullest_stage=fullest,
        padding=tuple(largest - g.own_bytes(fullest) for g in groups),
    )


def bytes_per_block(groups: Sequence[Group], rules: Rules, *, packed: bool) -> int:
    """Bytes of one block of the pool over the layers of these groups (of one stage)."""
    if packed and rules.packing == "tuples":
        return _tuples_bytes(groups)
    if packed and rules.packing == "slots":
        return _slots_bytes(groups)
    if packed:
        align = lcm(*(layer.pages.stride_alignment_bytes for g in groups for layer in g.layers))
        return round_up(max(sum(layer.pages.page_bytes for layer in g.layers) for g in groups), align)
    return max(
        sum(round_up(layer.pages.page_bytes, layer.pages.stride_alignment_bytes) for layer in g.layers) for g in groups
    )


def _tuples_bytes(groups: Sequence[Group]) -> int:
    """One page of every size of the first group, as often as the group that has most layers of one size."""
    sizes = {layer.pages.page_bytes for layer in groups[0].layers}
    return sum(sizes) * max(_repeats(g.layers) for g in groups if g.layers)


def _slots_bytes(groups: Sequence[Group]) -> int:
    """Every page size keeps as many slots as the group that has most of it."""
    slots: Counter[int] = Counter()
    for group in groups:
        for size, count in Counter(layer.pages.page_bytes for layer in group.layers).items():
            slots[size] = max(slots[size], count)
    return sum(size * count for size, count in slots.items())
