"""How long one decode step takes: FLOPs and bytes of every operation -> seconds, and which roof binds.

An operation takes max(floor, bytes / bandwidth, FLOPs / rate); a step is their sum, layer after layer. Peaks come from
the datasheet; the shares of them that kernels reach, and the floors below which none gets, are measured figures with a
range (`Efficiency`), so a step is an interval. What decides attention is heads, not batch: the intensity of MLA is
2 x heads x (2 x latent + rope) / bytes per token; that of the weight GEMMs grows with the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from kvplan.arith import cdiv
from kvplan.attention import Attention
from kvplan.cache import CacheTensor, Law
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec
from kvplan.parallel import Parallelism, stage_layers
from kvplan.storage import KvFormat
from kvplan.weights import layer_weights, outer_weights, rank_bytes_of

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment
    from kvplan.gpu import GpuSpec

Bound = Literal["memory", "compute", "launch"]
_USES = {"k": 1, "v": 1, "latent": 2, "rope": 1, "index_k": 1, "entry": 2, "entry_rope": 2}
"""How often a query head multiplies with a cached vector: a latent or a shared record serves as key and as value."""
_STATE_FLOPS = 6
"""Per state element and token: decay, outer product and add, read-out (the delta rule adds one more pair)."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the datasheet peaks that decode kernels reach, and the time below which no kernel ends.

    Centre, and the range seen over kernels: weight-bound GEMMs read at 72 to 90 % of peak, MLA kernels at 84 to 95 %;
    the best matmuls reach 77 to 87 % and attention 57 to 73 %; a small GEMM takes 4 to 13 us and a split-KV attention
    kernel with its reduction 6 to 20 us inside a CUDA graph (docs/explanation, section on decode time).
    """

    bandwidth: float
    rate: float
    floors: Mapping[str, float]
    """Seconds by kind of operation."""


CENTRE = Efficiency(0.80, 0.65, {"gemm": 8e-6, "attention": 12e-6, "collective": 12e-6})
BEST = Efficiency(0.92, 0.80, {"gemm": 4e-6, "attention": 6e-6, "collective": 6e-6})
WORST = Efficiency(0.60, 0.40, {"gemm": 13e-6, "attention": 20e-6, "collective": 25e-6})


@dataclass(frozen=True, slots=True)
class Read:
    """What a session's step does with one slot of the cache tensors that follow `law`."""

    law: Law
    grows: bool
    bytes_per_slot: int
    flops_per_slot: int


@dataclass(frozen=True, slots=True)
class Op:
    """One kind of kernel on one rank, run `count` times in a step.

    Per run: `weight_bytes` whatever the batch; for each session `session_bytes` and `flops`, and for attention its
    `reads` of the cache, which depend on the context; `experts` (number, chosen per token, bytes of all on this rank)
    are read as often as the batch is expected to choose distinct ones.
    """

    kind: Literal["gemm", "attention", "collective"]
    count: int
    weight_bytes: int = 0
    session_bytes: int = 0
    flops: int = 0
    reads: tuple[Read, ...] = ()
    experts: tuple[int, int, int] = (0, 0, 0)

    def session(self, tokens: int, dcp: int) -> tuple[int, int]:
        """(bytes, FLOPs) of one session of `tokens` tokens in one run."""
        if not self.reads:
            return self.session_bytes, self.flops
        size, flops = self.session_bytes, self.flops
        for read in self.reads:
            slots = int(read.law.slots(cdiv(tokens, dcp) if read.grows else tokens))
            size += read.bytes_per_slot * slots
            flops += read.flops_per_slot * slots
        return size, flops


class Load(NamedTuple):
    """One operation at a batch and a context: seconds at peak bandwidth and at peak rate, for each run."""

    kind: Literal["gemm", "attention", "collective"]
    runs: int
    memory_s: float
    compute_s: float

    def seconds(self, eff: Efficiency) -> tuple[float, Bound]:
        """Seconds of all runs under an efficiency, and what binds them."""
        memory, compute = self.memory_s / eff.bandwidth, self.compute_s / eff.rate
        floor = eff.floors[self.kind]
        if memory >= compute:
            return self.runs * max(floor, memory), "memory" if memory > floor else "launch"
        return self.runs * max(floor, compute), "compute" if compute > floor else "launch"


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step: its seconds, which roof took most of them, and a rank's totals for one micro-batch."""

    seconds: float
    bound: Bound
    read_bytes: int
    flops: int
    loads: tuple[Load, ...]
    stages: int

    @property
    def low_seconds(self) -> float:
        """With the best efficiencies that were measured."""
        return self.stages * sum(load.seconds(BEST)[0] for load in self.loads)

    @property
    def high_seconds(self) -> float:
        """With the worst."""
        return self.stages * sum(load.seconds(WORST)[0] for load in self.loads)


def query_heads(attention: Attention, tensor: CacheTensor) -> int:
    """Heads that multiply with one vector of `tensor`."""
    if tensor.role == "index_k":
        return getattr(attention, "index_n_heads", None) or 1
    return getattr(attention, "num_attention_heads", 1)


def cache_reads(attention: Attention, fmt: KvFormat, parallel: Parallelism) -> Iterator[Read]:
    """Reads of one layer on one rank; states are written back, and a layer that shares a cache reads its source's.

    FLOPs of MLA: 2 x heads x (2 x kv_lora_rank + qk_rope_head_dim) for each token read (absorbed form); projections are
    operations of their own.
    """
    source = attention.source if attention.kind == "shared" else attention
    for tensor in source.tensors():
        size = tensor.bytes_per_slot(fmt, parallel.tp, parallel.dcp)
        law = tensor.reads or tensor.law
        if tensor.role in _USES:
            sharers = 1 if tensor.role == "index_k" else parallel.tp // parallel.dcp
            flops = 2 * _USES[tensor.role] * cdiv(query_heads(source, tensor), sharers) * tensor.dim
            yield Read(law, tensor.grows, size, flops)
        else:
            yield Read(law, tensor.grows, 2 * size, _STATE_FLOPS * cdiv(tensor.heads, parallel.tp) * tensor.dim)


def attention_work(attention: Attention, tokens: int, fmt: KvFormat, parallel: Parallelism) -> tuple[int, int]:
    """(bytes, FLOPs) of one session's attention core in one layer on one rank."""
    return Op("attention", 1, reads=tuple(cache_reads(attention, fmt, parallel))).session(tokens, parallel.dcp)


def _layer_ops(spec: ModelSpec, group: LayerGroup, count: int, fmt: KvFormat, parallel: Parallelism) -> Iterator[Op]:
    """The kernels of one layer: attention cores, its GEMMs, experts, and the two all-reduces of tensor parallelism."""
    for attention in group.attention:
        reads = tuple(cache_reads(attention, fmt, parallel))
        if reads:
            yield Op("attention", count, reads=reads)
    experts = 0
    for weight in layer_weights(spec, group):
        if weight.part == "experts":
            experts += rank_bytes_of(spec, weight, parallel)
        elif weight.matrix:
            share = weight.numel_per_rank(parallel.tp)
            yield Op("gemm", count, rank_bytes_of(spec, weight, parallel), flops=2 * share)
    if experts and isinstance(group.mlp, MoeMlp):
        yield _expert_op(group.mlp, count, experts, spec, parallel)
    if parallel.tp > 1:
        moved = 2 * spec.hidden_size * 2 * (parallel.tp - 1) // parallel.tp
        yield Op("collective", 2 * count, session_bytes=moved)


def _expert_op(mlp: MoeMlp, count: int, rank_expert_bytes: int, spec: ModelSpec, parallel: Parallelism) -> Op:
    """Grouped GEMMs over the experts chosen; a rank works for its share of them, for the sessions of all it serves."""
    numel = sum(w.numel for w in mlp.weights(spec.hidden_size) if w.part == "experts")
    shares = max(parallel.ep, parallel.tp)
    flops = 2 * numel * mlp.num_experts_per_tok * replicas_served(parallel) // (mlp.num_experts * shares)
    chosen = (mlp.num_experts, mlp.num_experts_per_tok, rank_expert_bytes // 2)
    return Op("gemm", 2 * count, flops=flops // 2, experts=chosen)


def replicas_served(parallel: Parallelism) -> int:
    """Replicas whose sessions come to one rank's experts: all where experts are dealt out whole, else its own."""
    return parallel.dp if parallel.ep > 1 else 1


@lru_cache(maxsize=1024)
def operations(spec: ModelSpec, fmt: KvFormat, parallel: Parallelism) -> tuple[Op, ...]:
    """All kernels of one step on a rank of the fullest pipeline stage, with the head; equal ones counted together."""
    ops: list[Op] = []
    stage = max(stage_layers(spec.num_hidden_layers, parallel.pp), key=len)
    for group in spec.layer_groups:
        count = sum(i in stage for i in group.indices)
        if count:
            ops += _layer_ops(spec, group, count, fmt, parallel)
    head = next((w for w in outer_weights(spec) if w.part == "head"), next(iter(outer_weights(spec))))
    ops.append(Op("gemm", 1, rank_bytes_of(spec, head, parallel), flops=2 * head.numel_per_rank(parallel.tp)))
    counts: dict[Op, int] = {}
    for op in ops:
        one = replace(op, count=1)
        counts[one] = counts.get(one, 0) + op.count
    return tuple(replace(op, count=count) for op, count in counts.items())


def distinct_experts(experts: int, chosen: int, tokens: int) -> float:
    """Expected number of different experts that `tokens` tokens choose: E x (1 - (1 - k / E) ** tokens)."""
    return float(experts * (1 - (1 - chosen / experts) ** tokens))


def peak_flops(gpu: GpuSpec) -> float:
    """Dense rate of the 16-bit tensor cores, in which decode attention and most GEMMs accumulate; 0 where unknown."""
    return gpu.flops_per_s.of("bf16") or gpu.flops_per_s.of("fp16") or 0.0


def loads(
    ops: tuple[Op, ...], batch: int, tokens: int, gpu: GpuSpec, parallel: Parallelism
) -> tuple[list[Load], int, int]:
    """(loads, bytes, FLOPs) of one step of `batch` sessions on every replica."""
    bandwidth, rate = gpu.bytes_per_s or 0.0, peak_flops(gpu)
    link = gpu.interconnect.bytes_per_s if gpu.interconnect else None
    found, total_bytes, total_flops = [], 0.0, 0
    for op in ops:
        size, flops = op.session(tokens, parallel.dcp)
        moved: float = op.weight_bytes + batch * size
        if op.experts[0]:
            moved += _expert_bytes(op, batch * replicas_served(parallel))
        if op.kind == "collective":
            found.append(Load(op.kind, op.count, moved / link if link else 0.0, 0.0))
            continue
        found.append(Load(op.kind, op.count, moved / bandwidth, batch * flops / rate))
        total_bytes += op.count * moved
        total_flops += op.count * batch * flops
    return found, int(total_bytes), total_flops


def _expert_bytes(op: Op, tokens: int) -> float:
    experts, chosen, size = op.experts
    return distinct_experts(experts, chosen, tokens) / experts * size


def decode_step(deployment: Deployment, kv_format: KvFormat, batch: int) -> Step | None:
    """One step of `batch` sessions of full length on every replica; None where the GPU's peaks are unknown.

    With pipeline parallelism the batch is cut into as many micro-batches as there are stages; a token passes through
    all stages, each as slow as the fullest, while the other micro-batches keep them busy.
    """
    gpu, parallel = deployment.gpu, deployment.parallel
    if not gpu.bytes_per_s or not peak_flops(gpu):
        return None
    ops = operations(deployment.spec, kv_format, parallel)
    found, size, flops = loads(ops, cdiv(batch, parallel.pp), deployment.max_model_len, gpu, parallel)
    by_bound: dict[Bound, float] = {"memory": 0.0, "compute": 0.0, "launch": 0.0}
    for load in found:
        seconds, bound = load.seconds(CENTRE)
        by_bound[bound] += seconds
    return Step(
        seconds=parallel.pp * sum(by_bound.values()),
        bound=max(by_bound, key=by_bound.__getitem__),
        read_bytes=size,
        flops=flops,
        loads=tuple(found),
        stages=parallel.pp,
    )
