"""One model on one rank of one kind of GPU: backends, block size, pages, groups. Nothing here depends on the context
length, the batch, or the size of the pool, so that a grid over those computes it once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from kvplan.arith import cdiv
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines import _vllm_backends as backends
from kvplan.engines._vllm_blocksize import BlockChoice, Sizes, choose_block
from kvplan.engines._vllm_formats import KvDtype
from kvplan.engines._vllm_groups import Group, bytes_per_block, form_groups
from kvplan.engines._vllm_layers import (
    Cut, Rank, V4_BLOCK, caches, checkpoint_tokens, has_cache, is_state, state_page_bytes, stored_kv, token_bytes,
)  # fmt: skip
from kvplan.engines._vllm_pages import Layer
from kvplan.parallel import Parallelism, stage_layers

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.engines._vllm_backends import Backend
    from kvplan.engines._vllm_versions import Rules
    from kvplan.model import ModelSpec

T = TypeVar("T")
_PACKERS = {"nvfp4": "FLASHINFER", "turboquant": "TURBOQUANT", "int4": "TRITON_ATTN", "int8": "TRITON_ATTN"}


@dataclass(frozen=True, slots=True)
class Mixer:
    """One attention (or state) of one layer: `index` of the layer, its stage, whether a draft owns it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a geometry follows from, beside the model's mixers. Hashable, and cheap to hash."""

    rules: Rules = field(compare=False)
    release: tuple[int, int]
    capability: tuple[int, int] | None
    parallel: Parallelism
    kv: KvDtype
    own: KvDtype
    conv: str
    recurrent: str | None
    drafts: int
    state_mode: str
    block_size: int | None
    chunk_tokens: int | None
    attention_backend: str | None
    skip_layers: frozenset[str]
    hybrid_manager: bool

    def rank(self) -> Rank:
        """What sizes one layer on one rank."""
        from kvplan.storage import TORCH_DTYPES

        return Rank(
            rules=self.rules,
            major=self.capability[0] if self.capability else 0,
            tp=self.parallel.tp,
            own=self.own,
            conv=TORCH_DTYPES[self.conv],
            recurrent=TORCH_DTYPES[self.recurrent] if self.recurrent else None,
            drafts=self.drafts,
            state_mode=self.state_mode,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Groups over all stages; bytes of one block on each stage that has any; what was chosen on the way."""

    groups: tuple[Group, ...]
    stage_bytes: tuple[int, ...]
    kv: KvDtype
    backends: tuple[str, ...]
    block_size: int
    packed: bool


def mixers_of(spec: ModelSpec, pp: int, draft: tuple[Mixer, ...]) -> tuple[Mixer, ...]:
    """Every mixer that keeps a cache, in the order of the layers, then those of a draft on the last stage."""
    by_layer: Mapping[int, tuple[Attention, ...]] = {i: g.attention for g in spec.layer_groups for i in g.indices}
    stages = stage_layers(spec.num_hidden_layers, pp)
    own = (
        Mixer(index, stage, attention, position=position)
        for stage, indices in enumerate(stages)
        for index in indices
        for position, attention in enumerate(by_layer[index])
        if has_cache(attention)
    )
    return (*own, *draft)


class _Planner:
    """The steps from mixers to layers with pages, for one recipe."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.rank = recipe.rank()
        self.ds_mla = KvDtype("fp8_ds_mla", "fp8_ds_mla")

    def asked_kv(self, mixer: Mixer) -> KvDtype:
        """The KV dtype of one layer: the model's own where it is skipped."""
        skip = self.recipe.skip_layers
        if not skip or mixer.draft:
            return self.recipe.kv
        window = isinstance(mixer.attention, GroupedQueryAttention) and mixer.attention.sliding_window
        skipped = str(mixer.index) in skip or (window and "sliding_window" in skip)
        return self.recipe.own if skipped else self.recipe.kv

    def backend(self, attention: Attention, kv: KvDtype) -> Backend | None:
        """The backend that serves it; None for a state."""
        if is_state(attention):
            return None
        if isinstance(attention, CompressedAttention):
            return backends.COMPRESSED
        need = self._need(attention, kv)
        if need is None:
            return backends.DIFFERENT_VALUES
        return backends.choose(need, self.recipe.attention_backend, self.recipe.block_size)

    def _need(self, attention: Attention, kv: KvDtype) -> backends.Need | None:
        tp = self.recipe.parallel.tp
        if isinstance(attention, MultiHeadLatentAttention):
            return backends.Need(
                kv_dtype=kv.name,
                capability=self.recipe.capability,
                head_size=attention.kv_lora_rank + attention.qk_rope_head_dim,
                latent=True,
                sparse=bool(attention.index_topk),
                heads=cdiv(attention.num_attention_heads, tp),
                nope_head_dim=attention.qk_nope_head_dim,
                dcp=self.recipe.parallel.dcp,
            )
        key, value = attention.tensors()[:2]
        if key.dim != value.dim:
            return None
        query = getattr(attention, "num_attention_heads", key.heads)
        return backends.Need(
            kv_dtype=kv.name,
            capability=self.recipe.capability,
            head_size=key.dim,
            sinks=bool(getattr(attention, "sinks", False)),
            heads=cdiv(query, tp),
            grouped=query > key.heads,
            dcp=self.recipe.parallel.dcp,
        )

    def block(self, mixers: tuple[Mixer, ...], used: tuple[Backend, ...]) -> BlockChoice:
        """The block size that all layers start from."""
        if not used:
            return BlockChoice(backends.DEFAULT_BLOCK_SIZE)
        if backends.COMPRESSED in used:
            return BlockChoice(V4_BLOCK)
        recipe = self.recipe
        return choose_block(
            used,
            recipe.block_size,
            self._sizes(mixers, used),
            recipe.rules,
            major=self.rank.major,
            state_mode=recipe.state_mode,
            skips=bool(recipe.skip_layers),
        )

    def _sizes(self, mixers: tuple[Mixer, ...], used: tuple[Backend, ...]) -> Sizes:
        recipe, rank = self.recipe, self.rank
        attention = next(m.attention for m in mixers if not is_state(m.attention))
        states = {m.attention for m in mixers if is_state(m.attention)}
        kv = stored_kv(attention, recipe.kv, self.backend(attention, recipe.kv), self.ds_mla)
        size = token_bytes(attention, kv, rank)
        checkpoints = {checkpoint_tokens(s, rank) for s in states}
        return Sizes(
            token_bytes=size,
            own_token_bytes=token_bytes(attention, recipe.own, rank),
            first_token_bytes=size if _packs(used[0], kv) else _plain_bytes(attention, rank),
            state_bytes=max((state_page_bytes(s, rank) for s in states), default=0),
            latent=isinstance(attention, MultiHeadLatentAttention),
            sparse=isinstance(attention, MultiHeadLatentAttention) and bool(attention.index_topk),
            checkpoint_tokens=checkpoints.pop() if len(checkpoints) == 1 else 1,
            chunk_tokens=recipe.chunk_tokens,
        )

    def layers(self, mixers: tuple[Mixer, ...], choice: BlockChoice) -> Iterator[Layer]:
        """Every cache of every mixer with its pages; alike mixers are cut once."""
        cut: dict[tuple[Attention, KvDtype, bool], list[tuple[str, object]]] = {}
        for mixer in mixers:
            asked = self.asked_kv(mixer)
            key = (mixer.attention, asked, bool(choice.shared_page_bytes))
            if key not in cut:
                cut[key] = list(caches(mixer.attention, self._cut(mixer.attention, asked, choice), self.rank))
            for suffix, pages in cut[key]:
                yield Layer(f"{mixer.index}.{mixer.position}.{suffix}", mixer.stage, pages)  # type: ignore[arg-type]

    def _cut(self, attention: Attention, asked: KvDtype, choice: BlockChoice) -> Cut:
        backend = self.backend(attention, asked)
        kv = self.ds_mla if backend is backends.COMPRESSED else stored_kv(attention, asked, backend, self.ds_mla)
        return Cut(
            kv=kv,
            backend=backend,
            block_size=choice.block_size,
            state_block=None if self.recipe.state_mode == "none" else choice.block_size,
            state_page_bytes=choice.state_page_bytes,
            shared_page_bytes=choice.shared_page_bytes if asked is not self.recipe.kv else 0,
        )


def _packs(first: Backend, kv: KvDtype) -> bool:
    """Whether a backend knows how this KV dtype is packed; fp8 needs no packing."""
    packer = _PACKERS.get(kv.name.split("_")[0]) or ("TRITON_ATTN" if kv.name == "fp8_per_token_head" else None)
    return packer is None or packer == first.name


def _plain_bytes(attention: Attention, rank: Rank) -> int:
    """K and V at one byte an element: what a backend that does not know the packing takes a quantized token for."""
    return sum(cdiv(t.heads, rank.tp) * t.dim for t in attention.tensors() if t.role in ("k", "v"))


@lru_cache(maxsize=2048)
def geometry(same: Same[tuple[Mixer, ...]], recipe: Recipe) -> Geometry:
    """Backends, block size, pages and groups."""
    mixers, planner = same.value, _Planner(recipe)
    served = [(m, planner.backend(m.attention, planner.asked_kv(m))) for m in mixers]
    used = tuple(dict.fromkeys(b for _, b in served if b is not None))
    with_index = any(_indexed(m.attention) for m in mixers)
    choice = planner.block(mixers, (*used, *((backends.INDEXER,) if with_index else ())))
    packed = backends.COMPRESSED in used
    groups = form_groups(tuple(planner.layers(mixers, choice)), recipe.rules, hybrid_manager=recipe.hybrid_manager, packed=packed)
    stages = sorted({m.stage for m in mixers})
    return Geometry(
        groups=groups,
        stage_bytes=tuple(bytes_per_block([g.at(s) for g in groups], recipe.rules, packed=packed) for s in stages),
        kv=planner.ds_mla if packed else _stored(planner, served),
        backends=tuple(b.name for b in used),
        block_size=choice.block_size,
        packed=packed,
    )


def _indexed(attention: Attention) -> bool:
    return isinstance(attention, MultiHeadLatentAttention) and bool(attention.index_head_dim) and not attention.shares_index


def _stored(planner: _Planner, served: list[tuple[Mixer, Backend | None]]) -> KvDtype:
    """The KV dtype in force in the layers that are not skipped."""
    for mixer, backend in served:
        if backend is not None and planner.asked_kv(mixer) is planner.recipe.kv:
            return stored_kv(mixer.attention, planner.recipe.kv, backend, planner.ds_mla)
    return planner.recipe.kv
