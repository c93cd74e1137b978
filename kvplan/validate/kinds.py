"""The same decode step under other kinds of attention: MLA absorbed and restored, MHA, GQA-8, MQA, side by side.

Equal heads, batch and context, one layer, without the projections that all of them need (hidden to query, output to
hidden). MLA includes what it needs beside them: absorbing W_UK into the query and applying W_UV, or restoring K and V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.compare import variant
from kvplan.model import ModelSpec
from kvplan.validate import grouped
from kvplan.validate.bench import Stopwatch
from kvplan.validate.kernels import Backend, Launch, Problem
from kvplan.validate.memory import latent_attention_of, only_attention
from kvplan.validate.packing import Record
from kvplan.validate.paged import Extent, PagedCache
from kvplan.validate.result import Comparison

HEAD_KINDS = "mha", "gqa:8", "mqa"


@dataclass(frozen=True, slots=True)
class Scene:
    """What all kinds have in common."""

    spec: ModelSpec
    batch: int
    context_tokens: int
    device: str

    def normal(self, *shape: int, std: float = 1.0) -> Tensor:
        """bf16 values on the device."""
        return (torch.randn(*shape, device=self.device) * std).to(torch.bfloat16)

    def filled(self, record: Record) -> PagedCache:
        """A full contiguous cache."""
        cache = PagedCache.allocate(record, Extent(self.batch, self.context_tokens), device=self.device)
        cache.append(self.normal(self.batch, self.context_tokens, record.width))
        return cache


def compare_kinds(scene: Scene, absorbed: Backend, watch: Stopwatch, budget_s: float) -> list[Comparison]:
    """Time every kind for about `budget_s` seconds in all; `absorbed` is the kernel that stands for MLA."""
    kinds = [*_latent_kinds(scene, absorbed), *_head_kinds(scene)]
    heads = only_attention(scene.spec).num_attention_heads
    found = []
    for kind, make in kinds:
        launch, cache = make()
        seconds = watch.time([launch], budget_s / len(kinds)).median_s
        found.append(Comparison(kind, scene.batch, scene.context_tokens, heads, cache.used_bytes, seconds))
    return found


Made = tuple[Callable[[], object], PagedCache]


def _head_kinds(scene: Scene) -> Iterator[tuple[str, Callable[[], Made]]]:
    def made(attention: GroupedQueryAttention) -> Made:
        cache = scene.filled(grouped.record(attention))
        query = scene.normal(scene.batch, 1, attention.num_attention_heads, attention.head_dim)
        return grouped.decode(query, cache, attention), cache

    for kind in HEAD_KINDS:
        attention = only_attention(variant(scene.spec, kind))
        if isinstance(attention, GroupedQueryAttention):
            yield kind.replace(":", "-"), partial(made, attention)


def _latent_kinds(scene: Scene, absorbed: Backend) -> Iterator[tuple[str, Callable[[], Made]]]:
    attention = latent_attention_of(scene.spec)

    def made(form: Callable[[Scene, MultiHeadLatentAttention, PagedCache], Launch]) -> Made:
        cache = scene.filled(Record(attention.tensors()))
        return form(scene, attention, cache), cache

    def absorbed_form(scene: Scene, attention: MultiHeadLatentAttention, cache: PagedCache) -> Launch:
        return absorbed_decode(scene, attention, cache, absorbed)

    yield "mla absorbed", partial(made, absorbed_form)
    yield "mla restored", partial(made, restored_decode)


def _up_projections(scene: Scene, attention: MultiHeadLatentAttention) -> tuple[Tensor, Tensor]:
    """W_UK [heads, nope, latent] and W_UV [heads, latent, v]."""
    heads, rank = attention.num_attention_heads, attention.kv_lora_rank
    std = 1 / math.sqrt(rank)
    w_uk = scene.normal(heads, attention.qk_nope_head_dim, rank, std=std)
    return w_uk, scene.normal(heads, rank, attention.v_head_dim, std=std)


def absorbed_decode(scene: Scene, attention: MultiHeadLatentAttention, cache: PagedCache, backend: Backend) -> Launch:
    """Absorb, attend to the latent, apply W_UV."""
    w_uk, w_uv = _up_projections(scene, attention)
    heads, rank = attention.num_attention_heads, attention.kv_lora_rank
    content = scene.normal(scene.batch, heads, attention.qk_nope_head_dim)
    query = scene.normal(scene.batch, 1, heads, cache.record.width)
    attend = backend.prepare(Problem(query=query, cache=cache, softmax_scale=_scale(attention), latent_dim=rank))

    def launch() -> Tensor:
        query[:, 0, :, :rank] = torch.bmm(content.transpose(0, 1), w_uk).transpose(0, 1)
        return torch.bmm(attend()[:, 0].transpose(0, 1), w_uv)

    return launch


def restored_decode(scene: Scene, attention: MultiHeadLatentAttention, cache: PagedCache) -> Launch:
    """Compute K and V of every head from the cache in every step, as an engine without an MLA kernel must."""
    w_uk, w_uv = _up_projections(scene, attention)
    heads, rank = attention.num_attention_heads, attention.kv_lora_rank
    up = torch.cat([w_uk, w_uv.transpose(1, 2)], 1).flatten(0, 1)
    width = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    query = scene.normal(scene.batch, heads, 1, width)
    read = cache.reader()

    def launch() -> Tensor:
        latent, rope_key = torch.split(cache.record.unpack(read()), [rank, attention.qk_rope_head_dim], -1)
        restored = torch.unflatten(latent @ up.T, -1, (heads, -1)).transpose(1, 2)
        content, values = torch.split(restored, [attention.qk_nope_head_dim, attention.v_head_dim], -1)
        keys = torch.cat([content, rope_key[:, None].expand(-1, heads, -1, -1)], -1)
        return scaled_dot_product_attention(query, keys, values, scale=_scale(attention))

    return launch


def _scale(attention: MultiHeadLatentAttention) -> float:
    return float((attention.qk_nope_head_dim + attention.qk_rope_head_dim) ** -0.5)
