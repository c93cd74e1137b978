"""Allocate the planned cache for real, let it grow by decoding, and count its bytes.

Every prediction comes from the core: batch x session bytes at the context, rounded up to whole blocks where the cache
is paged. Storage must agree exactly; what the allocator or the process holds, up to the allocator's own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvplan.arith import round_up
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.compare import variant
from kvplan.errors import Unsupported
from kvplan.model import ModelSpec, session_bytes
from kvplan.parallel import Parallelism
from kvplan.storage import kv_format
from kvplan.units import format_bytes
from kvplan.validate import gauge, grouped
from kvplan.validate.kernels import Launch, Problem, torch_bmm, torch_sdpa
from kvplan.validate.kernels._torch import TorchForm
from kvplan.validate.layers import Heads, head_kinds, only_attention, with_layers
from kvplan.validate.machine import Machine
from kvplan.validate.packing import LATENT_DTYPES, Record
from kvplan.validate.paged import Extent, PagedCache, poisoned
from kvplan.validate.reference import grouped_attention, latent_attention
from kvplan.validate.result import BF16_BOUND, MemoryCheck, NumericCheck

BLOCK_TOKENS = 64
DECODE_STEPS = 4
RANK_HEADS = 16
"""Query heads of one of eight tensor-parallel ranks: the latent's bytes do not depend on them."""


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """One kind of attention in one KV dtype and layout. `spec` has as many layers as are really allocated."""

    kind: str
    spec: ModelSpec
    kv_dtype: str
    extent: Extent

    @property
    def id(self) -> str:
        """Kind, dtype and layout."""
        layout = "paged" if self.extent.block_size else "contiguous"
        return f"{self.kind.replace(':', '-')}-{self.kv_dtype}-{layout}"

    @property
    def attention(self) -> Heads:
        """The attention of every layer."""
        return only_attention(self.spec)

    @property
    def record(self) -> Record:
        """One token in one layer."""
        return Record(self.attention.tensors(), self.kv_dtype)

    def planned_bytes(self, tokens: int) -> int:
        """Reserved bytes of all sessions at `tokens` tokens each, over all layers."""
        slots = round_up(tokens, self.extent.block_tokens)
        per_session = session_bytes(self.spec, slots, kv_format(self.kv_dtype), Parallelism())
        return self.extent.batch * int(per_session)


def plan_cases(spec: ModelSpec, machine: Machine, extent: Extent, budget_bytes: int) -> list[MemoryCase]:
    """MLA in every KV dtype and MHA, GQA, MQA in bf16, each contiguous and paged, with the layers that fit into
    `budget_bytes`. Refuses, by its own plan, where not even one layer fits into the device."""
    kinds = [("mla", dtype) for dtype in LATENT_DTYPES] + [(kind, "bf16") for kind in head_kinds(spec)]
    layouts = extent, replace(extent, block_size=BLOCK_TOKENS)
    cases = []
    for kind, kv_dtype in kinds:
        other = spec if kind == "mla" else variant(spec, kind)
        for layout in layouts:
            one = MemoryCase(kind, with_layers(other, 1), kv_dtype, layout)
            layer_bytes = one.planned_bytes(extent.capacity_tokens)
            _refuse_unless_fits(one, layer_bytes, machine)
            layers = max(1, min(budget_bytes // layer_bytes, spec.num_hidden_layers))
            cases.append(replace(one, spec=with_layers(other, layers)))
    return cases


_CHECK_COPIES = 6
"""The cache itself, its values, and their float64 copies in the reference, in units of one layer's cache."""


def affordable(spec: ModelSpec, machine: Machine, extent: Extent) -> Extent:
    """`extent`, its batch and then its context halved until the widest kind, MHA, fits into the device."""
    mha = MemoryCase("mha", with_layers(variant(spec, "mha"), 1), "bf16", extent)
    while _CHECK_COPIES * mha.planned_bytes(extent.capacity_tokens) > machine.free_bytes:
        batch, context_tokens = extent.batch, extent.capacity_tokens
        if batch == 1 and context_tokens // 2 <= BLOCK_TOKENS:
            break
        extent = Extent(batch // 2, context_tokens) if batch > 1 else Extent(1, context_tokens // 2)
        mha = replace(mha, extent=extent)
    return extent


def _refuse_unless_fits(case: MemoryCase, layer_bytes: int, machine: Machine) -> None:
    """By the plan, before anything is allocated."""
    needed_bytes = _CHECK_COPIES * layer_bytes
    if needed_bytes > machine.free_bytes:
        raise Unsupported(
            f"{case.id}: {case.extent.batch} sessions of {case.extent.capacity_tokens:,} tokens need "
            f"{format_bytes(needed_bytes)} for one layer and its check; {machine.name} has "
            f"{format_bytes(machine.free_bytes)} free; use a smaller --batch or --context"
        )


def check_memory(case: MemoryCase, machine: Machine, seed: int = 0) -> tuple[list[MemoryCheck], NumericCheck]:
    """Allocate, fill, decode; then storage, use, the device's own count, peak, and the error of the last step."""
    planned_bytes = case.planned_bytes(case.extent.capacity_tokens)
    with gauge.out_of_memory_named(planned_bytes, machine.free_bytes, case.id):
        layers = case.spec.num_hidden_layers
        before = _held(machine.device)
        memory = poisoned(case.record, case.extent, layers, machine.device)
        checks = [*_storage_checks(case, memory), *_device_checks(case, before, _held(machine.device))]
        caches = [PagedCache.over(memory[i], case.record, case.extent, seed=seed + i) for i in range(layers)]
        values = _values(case, machine.device, seed)
        checks += _grow(case, caches, values)
        launches, query = _last_step(case, caches, seed)
        outputs = [launch() for launch in launches]
        checks += _peak_check(case, launches[0], _problem(case, caches[0], query), planned_bytes)
        return checks, _error(case, outputs, query, caches[0])


def _held(device: str) -> dict[str, int]:
    """What the device says it holds, by the name of the count."""
    if device == "cuda":
        torch.cuda.empty_cache()
        return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    gauge.release_freed_pages()
    process_bytes = gauge.anonymous_bytes()
    return {} if process_bytes is None else {"process": process_bytes}


def _storage_checks(case: MemoryCase, memory: Tensor) -> Iterator[MemoryCheck]:
    planned_bytes = case.planned_bytes(case.extent.capacity_tokens)
    yield MemoryCheck(case.id, "storage", planned_bytes, memory.untyped_storage().nbytes())


def _device_checks(case: MemoryCase, before: dict[str, int], after: dict[str, int]) -> Iterator[MemoryCheck]:
    """Growth of each count against its rule."""
    planned_bytes = case.planned_bytes(case.extent.capacity_tokens)
    rules = {
        "process": (planned_bytes, planned_bytes // 100),
        "allocated": (gauge.allocated_bytes(planned_bytes), 0),
        "reserved": (gauge.reserved_bytes(planned_bytes), 0),
    }
    for quantity, held_bytes in after.items():
        predicted_bytes, tolerance_bytes = rules[quantity]
        if predicted_bytes is not None:
            measured_bytes = held_bytes - before[quantity]
            yield MemoryCheck(case.id, quantity, predicted_bytes, measured_bytes, tolerance_bytes)


def _values(case: MemoryCase, device: str, seed: int) -> Tensor:
    """Every token of every session, the same in all layers: [batch, capacity, width]."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shape = (case.extent.batch, case.extent.capacity_tokens, case.record.width)
    return torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)


def _grow(case: MemoryCase, caches: Sequence[PagedCache], values: Tensor) -> Iterator[MemoryCheck]:
    """Prefill all but the last block's worth of tokens, then most of it, then decode token by token."""
    capacity = case.extent.capacity_tokens
    stops = [
        max(capacity - BLOCK_TOKENS, 0),
        capacity - DECODE_STEPS,
        *range(capacity - DECODE_STEPS + 1, capacity + 1),
    ]
    written = 0
    for stop in stops:
        packed = case.record.pack(values[:, written:stop])
        for cache in caches:
            cache.append_packed(packed)
        written = stop
        if stop in {stops[0], capacity} and case.extent.block_size and stop:
            used_bytes = sum(cache.used_bytes for cache in caches)
            yield MemoryCheck(case.id, f"in use at {stop} tokens", case.planned_bytes(stop), used_bytes)


def _last_step(case: MemoryCase, caches: Sequence[PagedCache], seed: int) -> tuple[list[Launch], Tensor]:
    """The decode step of every layer, and the query that all of them answer."""
    attention, device = case.attention, caches[0].blocks.device
    heads, width = attention.num_attention_heads, attention.head_dim
    if isinstance(attention, MultiHeadLatentAttention):
        heads, width = min(heads, RANK_HEADS), case.record.width
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    shape = (case.extent.batch, 1, heads, width)
    query = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
    if isinstance(attention, GroupedQueryAttention):
        return [grouped.decode(query, cache, attention) for cache in caches], query
    return [form_of(query).prepare(_problem(case, cache, query)) for cache in caches], query


def form_of(query: Tensor) -> TorchForm:
    """The form whose scratch is known: fused on a CPU, matrix products on CUDA."""
    return torch_bmm.BACKEND if query.device.type == "cuda" else torch_sdpa.BACKEND


def _problem(case: MemoryCase, cache: PagedCache, query: Tensor) -> Problem:
    attention = case.attention
    latent_dim = attention.kv_lora_rank if isinstance(attention, MultiHeadLatentAttention) else attention.head_dim
    return Problem(query=query, cache=cache, softmax_scale=query.shape[-1] ** -0.5, latent_dim=latent_dim)


def _peak_check(case: MemoryCase, launch: Launch, problem: Problem, planned_bytes: int) -> Iterator[MemoryCheck]:
    """Cache and scratch together at the height of a step, within 1 %."""
    scratch_bytes = form_of(problem.query).scratch_bytes(problem) if case.kind == "mla" else None
    if scratch_bytes is not None:
        measured_bytes = planned_bytes + gauge.peak_bytes(launch, problem.query.device.type)
        predicted_bytes = planned_bytes + scratch_bytes
        yield MemoryCheck(case.id, "peak", predicted_bytes, measured_bytes, predicted_bytes // 100)


def _error(case: MemoryCase, outputs: Sequence[Tensor], query: Tensor, cache: PagedCache) -> NumericCheck:
    """Largest error of the first session's output as a share of the largest output; NaN if any layer has one.

    The reference reads the dequantised cache, so that quantisation does not hide an error of the kernel.
    """
    scale, lengths, values = query.shape[-1] ** -0.5, cache.lengths[:1], cache.unpack()[:1]
    attention = case.attention
    if isinstance(attention, GroupedQueryAttention):
        truth, _ = grouped_attention(query[:1], *grouped.split_heads(values, attention), lengths, scale)
    else:
        truth, _ = latent_attention(query[:1], values, lengths, scale, attention.kv_lora_rank)
    finite = all(bool(output.isfinite().all()) for output in outputs)
    error = float((outputs[0][:1] - truth).abs().max() / truth.abs().max()) if finite else math.nan
    return NumericCheck(f"decode-{case.id}", "decode against float64, unread slots NaN", error, BF16_BOUND)
