"""The same decode step under other kinds of attention: MLA absorbed and restored, MHA, GQA, MQA, side by side.

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
from kvplan.validate.layers import head_kinds, latent_attention_of, only_attention
from kvplan.validate.packing import Record
from kvplan.validate.paged import Extent, PagedCache
from kvplan.validate.result import Comparison


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


@dataclass(frozen=True, slots=True)
class LatentStep:
    """One step of MLA, to be run in either form.

    content [batch, heads, nope] and rotary [batch, heads, rope] of the query; w_uk [heads, nope, latent] and w_uv
    [heads, latent, v].
    """

    attention: MultiHeadLatentAttention
    cache: PagedCache
    content: Tensor
    rotary: Tensor
    w_uk: Tensor
    w_uv: Tensor

    @classmethod
    def of(cls, scene: Scene) -> LatentStep:
        """Random weights that keep the variance, random queries, a full cache."""
        a = latent_attention_of(scene.spec)
        heads, rank, std = a.num_attention_heads, a.kv_lora_rank, 1 / math.sqrt(a.kv_lora_rank)
        return cls(
            attention=a,
            cache=scene.filled(Record(a.tensors())),
            content=scene.normal(scene.batch, heads, a.qk_nope_head_dim),
            rotary=scene.normal(scene.batch, heads, a.qk_rope_head_dim),
            w_uk=scene.normal(heads, a.qk_nope_head_dim, rank, std=std),
            w_uv=scene.normal(heads, rank, a.v_head_dim, std=std),
        )

    @property
    def softmax_scale(self) -> float:
        """1 / sqrt(nope + rope)."""
        return float((self.attention.qk_nope_head_dim + self.attention.qk_rope_head_dim) ** -0.5)

    def absorbed(self, backend: Backend) -> Launch:
        """Absorb, attend to the latent, apply W_UV: [heads, batch, v]."""
        rank = self.attention.kv_lora_rank
        query = torch.cat([self.rotary.new_empty(*self.rotary.shape[:2], rank), self.rotary], -1)[:, None]
        problem = Problem(query=query, cache=self.cache, softmax_scale=self.softmax_scale, latent_dim=rank)
        attend = backend.prepare(problem)

        def launch() -> Tensor:
            query[:, 0, :, :rank] = torch.bmm(self.content.transpose(0, 1), self.w_uk).transpose(0, 1)
            return torch.bmm(attend()[:, 0].transpose(0, 1), self.w_uv)

        return launch

    def restored(self) -> Launch:
        """Compute K and V of every head from the cache in each step, as an engine without an MLA kernel must:
        [batch, heads, 1, v]."""
        a, heads = self.attention, self.attention.num_attention_heads
        up = torch.cat([self.w_uk, self.w_uv.transpose(1, 2)], 1).flatten(0, 1)
        query = torch.cat([self.content, self.rotary], -1)[:, :, None]
        record, read = self.cache.record, self.cache.reader()

        def launch() -> Tensor:
            latent, rope_key = torch.split(record.unpack(read()), [a.kv_lora_rank, a.qk_rope_head_dim], -1)
            both = torch.unflatten(latent @ up.T, -1, (heads, -1)).transpose(1, 2)
            content, values = torch.split(both, [a.qk_nope_head_dim, a.v_head_dim], -1)
            keys = torch.cat([content, rope_key[:, None].expand(-1, heads, -1, -1)], -1)
            return scaled_dot_product_attention(query, keys, values, scale=self.softmax_scale)

        return launch


def compare_kinds(scene: Scene, kernel: Backend, watch: Stopwatch, budget_s: float) -> list[Comparison]:
    """Time every kind for about `budget_s` seconds in all; `kernel` is what runs absorbed MLA."""
    kinds = [*_latent_kinds(scene, kernel), *_head_kinds(scene)]
    heads = only_attention(scene.spec).num_attention_heads
    found = []
    for kind, make in kinds:
        launch, cache = make()
        seconds = watch.time([launch], budget_s / len(kinds)).median_s
        found.append(Comparison(kind, scene.batch, scene.context_tokens, heads, cache.used_bytes, seconds))
    return found


Made = tuple[Callable[[], object], PagedCache]


def _latent_kinds(scene: Scene, kernel: Backend) -> Iterator[tuple[str, Callable[[], Made]]]:
    step = LatentStep.of(scene)
    yield "mla absorbed", lambda: (step.absorbed(kernel), step.cache)
    yield "mla restored", lambda: (step.restored(), step.cache)


def _head_kinds(scene: Scene) -> Iterator[tuple[str, Callable[[], Made]]]:
    for kind in head_kinds(scene.spec):
        attention = only_attention(variant(scene.spec, kind))
        if isinstance(attention, GroupedQueryAttention):
            yield kind.replace(":", "-"), partial(_made_of_heads, scene, attention)


def _made_of_heads(scene: Scene, attention: GroupedQueryAttention) -> Made:
    cache = scene.filled(grouped.record(attention))
    query = scene.normal(scene.batch, 1, attention.num_attention_heads, attention.head_dim)
    return grouped.decode(query, cache, attention), cache
