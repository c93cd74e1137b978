"""Several ranks: what each holds is what the plan says, and together they compute what one rank computes.

    torchrun --nproc-per-node N -m kvplan validate --ranks

Three ways to spread a layer: GQA's KV heads sharded by tensor parallelism; MLA under tensor parallelism, whose one
latent is on every rank; MLA with decode context parallelism, where rank r holds the positions p with p mod N = r and
partial outputs are merged by their log-sum-exp. Attention is the float64 reference, so the bound is that of exact
algebra; collectives are NCCL on GPUs, gloo on CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from kvplan.arith import cdiv
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.compare import variant
from kvplan.errors import BadInput, Unsupported
from kvplan.model import ModelSpec, session_bytes
from kvplan.parallel import Parallelism
from kvplan.storage import kv_format
from kvplan.validate import grouped
from kvplan.validate.layers import latent_attention_of, latent_layers, only_attention, with_layers
from kvplan.validate.machine import find_machine
from kvplan.validate.packing import Record
from kvplan.validate.paged import Extent, PagedCache
from kvplan.validate.reference import grouped_attention, latent_attention, merge_by_log_sum_exp
from kvplan.validate.result import MemoryCheck, NumericCheck, Validation

BATCH, CONTEXT_TOKENS, GQA_HEADS = 2, 1021, 8
"""A context that no number of ranks but 1 and 1021 divides: the last slots of some ranks stay empty."""
BOUND = 1e-12


@dataclass(frozen=True, slots=True)
class Group:
    """This process among its peers. `device` is `cpu` or this rank's `cuda:N`."""

    rank: int
    size: int
    device: str

    def gather(self, mine: Tensor) -> list[Tensor]:
        """Every rank's tensor, in the order of ranks."""
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine.contiguous())
        return parts

    def share(self, total: int, what: str) -> slice:
        """This rank's part of `total` heads."""
        if total % self.size:
            raise Unsupported(f"--ranks: {total} {what} do not share out over {self.size} ranks")
        each = total // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


@contextmanager
def process_group(device: str) -> Iterator[Group]:
    """Join the group that torchrun set up. NCCL needs a GPU for each rank; otherwise gloo on the CPU."""
    if "WORLD_SIZE" not in os.environ:
        raise BadInput("--ranks: start several: torchrun --nproc-per-node 2 -m kvplan validate --ranks")
    local_rank, size = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ["WORLD_SIZE"])
    on_gpus = device != "cpu" and torch.cuda.device_count() > local_rank
    if on_gpus:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if on_gpus else "gloo")
    try:
        yield Group(dist.get_rank(), size, f"cuda:{local_rank}" if on_gpus else "cpu")
    finally:
        dist.destroy_process_group()


def check_ranks(spec: ModelSpec, group: Group) -> tuple[list[MemoryCheck], list[NumericCheck]]:
    """The three schemes on this rank; the result of every rank is on every rank."""
    found = [tensor_parallel_gqa(spec, group), tensor_parallel_mla(spec, group), context_parallel_mla(spec, group)]
    everyone: list[list[tuple[MemoryCheck, NumericCheck]]] = [[] for _ in range(group.size)]
    dist.all_gather_object(everyone, found)
    flat = [pair for rank in everyone for pair in rank]
    return [memory for memory, _ in flat], [numeric for _, numeric in flat]


@dataclass(slots=True)
class RankSession:
    """The checks of several ranks as a session of one step; only rank 0 has a result."""

    spec: ModelSpec
    device: str
    expected_steps: int = 1
    found: Validation | None = None

    def steps(self) -> Iterator[str]:
        """Join the group, check, leave."""
        with process_group(self.device) as group:
            memory, numerics = check_ranks(latent_layers(self.spec), group)
        if group.rank == 0:
            machine = find_machine("cpu" if group.device == "cpu" else "cuda")
            self.found = Validation(
                device=machine.device,
                model=self.spec.name,
                machine=machine.as_dict() | {"ranks": group.size},
                probes={},
                numerics=tuple(numerics),
                memory=tuple(memory),
                decode=(),
            )
        yield f"{group.size} ranks"

    def result(self) -> Validation | None:
        """What was found, on rank 0."""
        return self.found


def _normal(shape: tuple[int, ...], group: Group, seed: int) -> Tensor:
    """The same values on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.bfloat16).to(group.device)


def _filled(record: Record, values: Tensor, group: Group, capacity_tokens: int) -> PagedCache:
    cache = PagedCache.allocate(record, Extent(len(values), capacity_tokens), device=group.device)
    cache.append(values)
    return cache


def _planned_bytes(spec: ModelSpec, parallel: Parallelism) -> int:
    """What one rank stores for the batch in one layer."""
    return BATCH * int(session_bytes(with_layers(spec, 1), CONTEXT_TOKENS, kv_format("bf16"), parallel))


def _verdict(name: str, planned_bytes: int, cache: PagedCache, error: Tensor) -> tuple[MemoryCheck, NumericCheck]:
    memory = MemoryCheck(name, "storage", planned_bytes, cache.blocks.untyped_storage().nbytes())
    return memory, NumericCheck(name, "output of all ranks against one rank's", float(error.abs().max()), BOUND)


def tensor_parallel_gqa(spec: ModelSpec, group: Group) -> tuple[MemoryCheck, NumericCheck]:
    """Each rank holds its KV heads and answers their query heads."""
    spec = variant(spec, f"gqa:{GQA_HEADS}")
    whole = only_attention(spec)
    heads, kv_heads = whole.num_attention_heads, group.share(GQA_HEADS, "KV heads")
    values = _normal((BATCH, CONTEXT_TOKENS, 2 * GQA_HEADS * whole.head_dim), group, seed=1)
    query = _normal((BATCH, 1, heads, whole.head_dim), group, seed=2)
    keys, values = (torch.unflatten(part, -1, (GQA_HEADS, -1)) for part in values.chunk(2, -1))
    mine = torch.cat([keys[:, :, kv_heads].flatten(2), values[:, :, kv_heads].flatten(2)], -1)
    shard = GroupedQueryAttention(
        num_attention_heads=heads // group.size,
        num_key_value_heads=GQA_HEADS // group.size,
        head_dim=whole.head_dim,
    )
    cache = _filled(Record(shard.tensors()), mine, group, CONTEXT_TOKENS)
    part = query[:, :, group.share(heads, "query heads")]
    scale = whole.head_dim**-0.5
    output, _ = grouped_attention(part, *grouped.split_heads(cache.unpack(), shard), cache.lengths, scale)
    alone, _ = grouped_attention(query, keys, values, cache.lengths, scale)
    error = torch.cat(group.gather(output), 2) - alone
    return _verdict(f"rank{group.rank}-gqa-tp", _planned_bytes(spec, Parallelism(tp=group.size)), cache, error)


def tensor_parallel_mla(spec: ModelSpec, group: Group) -> tuple[MemoryCheck, NumericCheck]:
    """Each rank holds the whole latent and answers its query heads."""
    attention, entries, query, scale = _latent_problem(spec, group)
    cache = _filled(Record(attention.tensors()), entries, group, CONTEXT_TOKENS)
    part = query[:, :, group.share(attention.num_attention_heads, "query heads")]
    output, _ = latent_attention(part, cache.unpack(), cache.lengths, scale, attention.kv_lora_rank)
    alone, _ = latent_attention(query, entries, cache.lengths, scale, attention.kv_lora_rank)
    error = torch.cat(group.gather(output), 2) - alone
    return _verdict(f"rank{group.rank}-mla-tp", _planned_bytes(spec, Parallelism(tp=group.size)), cache, error)


def context_parallel_mla(spec: ModelSpec, group: Group) -> tuple[MemoryCheck, NumericCheck]:
    """Each rank holds every N-th position and answers all query heads over them."""
    attention, entries, query, scale = _latent_problem(spec, group)
    mine = entries[:, group.rank :: group.size]
    cache = _filled(Record(attention.tensors()), mine, group, cdiv(CONTEXT_TOKENS, group.size))
    partial, lse = latent_attention(query, cache.unpack(), cache.lengths, scale, attention.kv_lora_rank)
    output, _ = merge_by_log_sum_exp(torch.stack(group.gather(partial)), torch.stack(group.gather(lse)))
    full = torch.full_like(cache.lengths, CONTEXT_TOKENS)
    alone, _ = latent_attention(query, entries, full, scale, attention.kv_lora_rank)
    parallel = Parallelism(tp=group.size, dcp=group.size)
    return _verdict(f"rank{group.rank}-mla-dcp", _planned_bytes(spec, parallel), cache, output - alone)


def _latent_problem(spec: ModelSpec, group: Group) -> tuple[MultiHeadLatentAttention, Tensor, Tensor, float]:
    """(attention, entries [batch, tokens, width], query [batch, 1, heads, width], scale), alike on every rank."""
    attention = latent_attention_of(spec)
    width = attention.kv_lora_rank + attention.qk_rope_head_dim
    entries = _normal((BATCH, CONTEXT_TOKENS, width), group, seed=3)
    query = _normal((BATCH, 1, attention.num_attention_heads, width), group, seed=4)
    return attention, entries, query, (attention.qk_nope_head_dim + attention.qk_rope_head_dim) ** -0.5
