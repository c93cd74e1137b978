"""One model on one rank of one kind of GPU: backends, block size, pages, groups. Nothing here depends on the context
length, the batch, or the size of the pool, so that a grid over those computes it once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.vllm.backends import COMPRESSED, DEFAULT_BLOCK_SIZE, INDEXER, check_layouts
from kvplan.engines.vllm.blocksize import BlockChoice, Sizes, choose_block
from kvplan.engines.vllm.compressed import BLOCK_TOKENS
from kvplan.engines.vllm.formats import KvDtype, knows_packing
from kvplan.engines.vllm.groups import BlockBytes, Group, block_bytes, form_groups
from kvplan.engines.vllm.layers import Cut, caches
from kvplan.engines.vllm.mixers import Mixer, Same
from kvplan.engines.vllm.pages import Layer, PageSpec
from kvplan.engines.vllm.sizes import (
    checkpoint_tokens,
    recurrent_storage,
    state_page_bytes,
    token_bytes,
    unpacked_bytes,
)
from kvplan.errors import Unsupported

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.engines.vllm.backends import Backend
    from kvplan.engines.vllm.recipe import Recipe
    from kvplan.storage import KvFormat

Served: TypeAlias = tuple[Mixer, KvDtype, "Backend | None"]
"""A mixer, the KV dtype asked for it, the backend that serves it (None: a state)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Groups over all stages, with the tokens of their blocks (None: the whole context); bytes of one block; what was
    chosen on the way.

    `kv_format`: how each role is stored, states included. `packed`: groups lie side by side in one block (DeepSeek-V4).
    """

    groups: tuple[Group, ...]
    block_sizes: tuple[int | None, ...]
    block: BlockBytes
    kv: KvDtype
    kv_format: KvFormat
    backends: tuple[str, ...]
    block_size: int
    packed: bool

    @property
    def stage_bytes(self) -> tuple[int, ...]:
        """Bytes of one block on every stage that has any layers with a cache."""
        return self.block.of_stages


@lru_cache(maxsize=2048)
def geometry(mixers: Same[tuple[Mixer, ...]], recipe: Recipe) -> Geometry:
    """Backends, block sizes, pages and groups. Every stage chooses its block size by its own layers."""
    served = _served(mixers.value, recipe)
    used = _backends(served)
    packed = COMPRESSED in used
    if packed and not recipe.hybrid_manager:
        raise Unsupported("vLLM: DeepSeek-V4 needs the hybrid KV cache manager")
    if recipe.rules.one_kv_layout:
        check_layouts(used, recipe.major)
    stages = tuple(sorted({m.stage for m in mixers.value}))
    choices = {s: _block([x for x in served if x[0].stage == s], recipe) for s in stages}
    layers = tuple(_layers(served, choices, recipe))
    groups = form_groups(layers, recipe.rules, hybrid_manager=recipe.hybrid_manager, packed=packed)
    kv = _in_force(served, recipe)
    return Geometry(
        groups=groups,
        block_sizes=tuple(g.pages.block_size for g in groups),
        block=block_bytes(groups, stages, recipe.rules, packed=packed),
        kv=kv,
        kv_format=_storage(served, kv, recipe),
        backends=tuple(b.name for b in used),
        block_size=min((c.block_size for c in choices.values()), default=DEFAULT_BLOCK_SIZE),
        packed=packed,
    )


def _served(mixers: Iterable[Mixer], recipe: Recipe) -> list[Served]:
    """Alike mixers are looked up once."""
    found: dict[tuple[int, KvDtype], Backend | None] = {}
    served = []
    for mixer in mixers:
        kv = recipe.asked_kv(mixer)
        key = (id(mixer.attention), kv)
        if key not in found:
            found[key] = recipe.backend(mixer.attention, kv)
        served.append((mixer, kv, found[key]))
    return served


def _backends(served: Iterable[Served]) -> tuple[Backend, ...]:
    return tuple(dict.fromkeys(backend for _, _, backend in served if backend is not None))


def _block(served: Sequence[Served], recipe: Recipe) -> BlockChoice:
    """The block size that the layers of one stage start from."""
    used = _backends(served)
    if not used:
        return BlockChoice(DEFAULT_BLOCK_SIZE)
    if COMPRESSED in used:
        return BlockChoice(BLOCK_TOKENS)
    kernels = (*used, INDEXER) if any(_keeps_index(m.attention) for m, _, _ in served) else used
    return choose_block(
        kernels,
        recipe.block_size,
        _sizes(served, used[0], recipe),
        recipe.rules,
        major=recipe.major,
        state_mode=recipe.state_mode,
        skips=bool(recipe.skip_layers),
    )


def _keeps_index(attention: Attention) -> bool:
    if not isinstance(attention, MultiHeadLatentAttention):
        return False
    return bool(attention.index_head_dim) and not attention.shares_index


def _sizes(served: Sequence[Served], first: Backend, recipe: Recipe) -> Sizes:
    """Sizes by the first layer of attention and the largest state."""
    rank = recipe.rank()
    attention = next(m.attention for m, _, b in served if b is not None)
    states = {m.attention for m, _, b in served if b is None}
    kv = _stored(recipe.kv, recipe.backend(attention, recipe.kv))
    size = token_bytes(attention, kv, rank)
    checkpoints = {checkpoint_tokens(s, rank) for s in states}
    latent = isinstance(attention, MultiHeadLatentAttention)
    return Sizes(
        token_bytes=size,
        own_token_bytes=token_bytes(attention, recipe.own, rank),
        first_token_bytes=size if knows_packing(first.name, kv) else unpacked_bytes(attention, rank),
        state_bytes=max((state_page_bytes(s, rank) for s in states), default=0),
        latent=latent,
        sparse=latent and first.sparse,
        checkpoint_tokens=checkpoints.pop() if len(checkpoints) == 1 else 1,
        chunk_tokens=recipe.chunk_tokens,
    )


def _layers(served: Iterable[Served], choices: Mapping[int, BlockChoice], recipe: Recipe) -> Iterator[Layer]:
    """Every cache of every mixer with its pages; alike mixers are cut once."""
    rank = recipe.rank()
    cut: dict[tuple[int, KvDtype, BlockChoice], list[tuple[str, PageSpec]]] = {}
    for mixer, asked, backend in served:
        choice = choices[mixer.stage]
        key = (id(mixer.attention), asked, choice)
        if key not in cut:
            cut[key] = list(caches(mixer.attention, _cut(asked, backend, choice, recipe), rank))
        for suffix, pages in cut[key]:
            yield Layer(f"{mixer.index}.{mixer.position}.{suffix}", mixer.stage, pages)


def _cut(asked: KvDtype, backend: Backend | None, choice: BlockChoice, recipe: Recipe) -> Cut:
    return Cut(
        kv=_stored(asked, backend),
        backend=backend,
        block_size=choice.block_size,
        state_block=None if recipe.state_mode == "none" else choice.block_size,
        state_page_bytes=choice.state_page_bytes,
        shared_page_bytes=choice.shared_page_bytes if asked is not recipe.kv else 0,
    )


def _stored(asked: KvDtype, backend: Backend | None) -> KvDtype:
    return asked if backend is None else backend.stores(asked)


def _in_force(served: Iterable[Served], recipe: Recipe) -> KvDtype:
    """The KV dtype of the layers that are not skipped."""
    kept = (b for _, kv, b in served if b is not None and kv is recipe.kv)
    return _stored(recipe.kv, next(kept, None))


def _storage(served: Iterable[Served], kv: KvDtype, recipe: Recipe) -> KvFormat:
    """How each role is stored, states as this engine keeps them."""
    rank = recipe.rank()
    states = (m.attention for m, _, backend in served if backend is None)
    recurrent = next((recurrent_storage(s, rank) for s in states), rank.conv)
    return kv.format.with_roles(conv_state=rank.conv, recurrent_state=recurrent)
