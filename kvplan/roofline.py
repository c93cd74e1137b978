"""How long one decode step takes: FLOPs and bytes of every operation -> seconds, and which roof binds.

An operation takes max(floor, bytes / bandwidth, FLOPs / rate); a step is their sum, layer after layer. Peaks come from
the datasheet; the shares of them that kernels reach, and the floors below which none gets, are measured figures with a
range (`Efficiency`), so a step is an interval. What decides attention is heads, not batch: the intensity of MLA is
2 x heads x (2 x latent + rope) / bytes per token; that of the weight GEMMs grows with the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from kvplan.arith import cdiv
from kvplan.attention import Attention
from kvplan.cache import CacheTensor
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

    Centre, and the range seen over kernels: weight-bound GEMMs read at 72 to 90 % of peak and MLA kernels at 84 to 95 %;
    the best matmuls reach 77 to 87 % and attention 57 to 73 %; a small GEMM takes 4 to 13 us and a split-KV attention
    kernel with its reduction 6 to 20 us inside a CUDA graph (docs/explanation, section on decode time).
    """

    bandwidth: float
    rate: float
    gemm_floor_s: float
    attention_floor_s: float
    collective_floor_s: float


CENTRE = Efficiency(0.80, 0.65, 8e-6, 12e-6, 12e-6)
BEST = Efficiency(0.92, 0.80, 4e-6, 6e-6, 6e-6)
WORST = Efficiency(0.60, 0.40, 13e-6, 20e-6, 25e-6)


@dataclass(frozen=True, slots=True)
class Op:
    """One kind of kernel on one rank, run `count` times in a step.

    Per run: `weight_bytes` whatever the batch; for each session `session_bytes` and `flops`; `experts` (number, chosen
    per token, bytes of one) are read as often as the batch is expected to choose distinct ones.
    """

    kind: Literal["gemm", "attention", "collective"]
    count: int
    weight_bytes: int
    session_bytes: int
    flops: int
    experts: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step: seconds with their range, which roof took most of the time, and the totals of a rank."""

    seconds: float
    low_seconds: float
    high_seconds: float
    bound: Bound
    read_bytes: int
    flops: int


def query_heads(attention: Attention, tensor: CacheTensor) -> int:
    """Heads that multiply with one vector of `tensor`."""
    if tensor.role == "index_k":
        return getattr(attention, "index_n_heads", None) or 1
    return getattr(attention, "num_attention_heads", 1)


def attention_flops(attention: Attention, tokens: int, parallel: Parallelism) -> int:
    """FLOPs of one session's attention core in one layer on one rank, projections left out.

    MLA: 2 x heads x (2 x kv_lora_rank + qk_rope_head_dim) for each token read (absorbed form).
    """
    source = attention.source if attention.kind == "shared" else attention
    total = 0
    for tensor in source.tensors():
        slots = int(tensor.read_slots(tokens, parallel.dcp))
        if tensor.role in _USES:
            heads = query_heads(source, tensor)
            sharers = 1 if tensor.role == "index_k" else parallel.tp // parallel.dcp
            total += 2 * _USES[tensor.role] * cdiv(heads, sharers) * tensor.dim * slots
        else:
            total += _STATE_FLOPS * cdiv(tensor.heads, parallel.tp) * tensor.dim * slots
    return total


def attention_bytes(attention: Attention, tokens: int, fmt: KvFormat, parallel: Parallelism) -> int:
    """Cache bytes that one session's step moves in one layer on one rank: reads, and states written back."""
    source = attention.source if attention.kind == "shared" else attention
    total = 0
    for tensor in source.tensors():
        written_back = 1 if tensor.role in _USES else 2
        slots = int(tensor.read_slots(tokens, parallel.dcp))
        total += written_back * tensor.bytes_per_slot(fmt, parallel.tp, parallel.dcp) * slots
    return total


def _layer_ops(
    spec: ModelSpec, group: LayerGroup, count: int, tokens: int, fmt: KvFormat, parallel: Parallelism
) -> Iterator[Op]:
    """The kernels of one layer: attention cores, its GEMMs, experts, and the two all-reduces of tensor parallelism."""
    for attention in group.attention:
        size = attention_bytes(attention, tokens, fmt, parallel)
        if size:
            yield Op("attention", count, 0, size, attention_flops(attention, tokens, parallel))
    experts = 0
    for weight in layer_weights(spec, group):
        if weight.part == "experts":
            experts += rank_bytes_of(spec, weight, parallel)
        elif weight.matrix:
            share = weight.numel_per_rank(parallel.tp)
            yield Op("gemm", count, rank_bytes_of(spec, weight, parallel), 0, 2 * share)
    if experts and isinstance(group.mlp, MoeMlp):
        yield _expert_op(group.mlp, count, experts, spec, parallel)
    if parallel.tp > 1:
        moved = 2 * spec.hidden_size * 2 * (parallel.tp - 1) // parallel.tp
        yield Op("collective", 2 * count, 0, moved, 0)


def _expert_op(mlp: MoeMlp, count: int, rank_expert_bytes: int, spec: ModelSpec, parallel: Parallelism) -> Op:
    """Grouped GEMMs over the experts chosen; a rank works for its share of them."""
    numel = sum(w.numel for w in mlp.weights(spec.hidden_size) if w.part == "experts")
    shares = max(parallel.ep, parallel.tp)
    flops = 2 * numel * mlp.num_experts_per_tok // (mlp.num_experts * shares)
    return Op("gemm", 2 * count, 0, 0, flops // 2, (mlp.num_experts, mlp.num_experts_per_tok, rank_expert_bytes // 2))


@lru_cache(maxsize=4096)
def operations(spec: ModelSpec, tokens: int, fmt: KvFormat, parallel: Parallelism) -> tuple[Op, ...]:
    """All kernels of one step on a rank of the fullest pipeline stage, the head included."""
    ops: list[Op] = []
    stage = max(stage_layers(spec.num_hidden_layers, parallel.pp), key=len)
    for group in spec.layer_groups:
        count = sum(i in stage for i in group.indices)
        if count:
            ops += _layer_ops(spec, group, count, tokens, fmt, parallel)
    head = next((w for w in outer_weights(spec) if w.part == "head"), next(iter(outer_weights(spec))))
    ops.append(Op("gemm", 1, rank_bytes_of(spec, head, parallel), 0, 2 * head.numel_per_rank(parallel.tp)))
    return tuple(ops)


def distinct_experts(experts: int, chosen: int, tokens: int) -> float:
    """Expected number of different experts that `tokens` tokens choose: E x (1 - (1 - k / E) ** tokens)."""
    return experts * (1 - (1 - chosen / experts) ** tokens)


def op_bytes(op: Op, batch: int, replicas: int = 1) -> float:
    """Bytes that one run of `op` moves for `batch` sessions; experts serve the sessions of all replicas."""
    experts, chosen, size = op.experts
    read = distinct_experts(experts, chosen, batch * replicas) / experts * size if experts else 0.0
    return op.weight_bytes + batch * op.session_bytes + read


def _op_seconds(op: Op, batch: int, gpu: GpuSpec, eff: Efficiency, parallel: Parallelism) -> tuple[float, Bound]:
    """Seconds of all runs of one operation, and what binds it."""
    if op.kind == "collective":
        link = gpu.interconnect.bytes_per_s if gpu.interconnect else None
        moved = batch * op.session_bytes / (link * eff.bandwidth) if link else 0.0
        return op.count * max(eff.collective_floor_s, moved), "launch"
    floor = eff.attention_floor_s if op.kind == "attention" else eff.gemm_floor_s
    memory = op_bytes(op, batch, parallel.dp) / ((gpu.bytes_per_s or 0.0) * eff.bandwidth)
    compute = batch * op.flops / (peak_flops(gpu) * eff.rate)
    slowest = max(floor, memory, compute)
    bound: Bound = "launch" if slowest == floor else "memory" if slowest == memory else "compute"
    return op.count * slowest, bound


def peak_flops(gpu: GpuSpec) -> float:
    """Dense rate of the 16-bit tensor cores, in which decode attention and most GEMMs accumulate."""
    return gpu.flops_per_s.of("bf16") or gpu.flops_per_s.of("fp16") or 0.0


def step_seconds(ops: tuple[Op, ...], batch: int, gpu: GpuSpec, eff: Efficiency, parallel: Parallelism) -> dict[Bound, float]:
    """Seconds of one step by what binds them."""
    totals: dict[Bound, float] = {"memory": 0.0, "compute": 0.0, "launch": 0.0}
    for op in ops:
        seconds, bound = _op_seconds(op, batch, gpu, eff, parallel)
        totals[bound] += seconds
    return totals


def decode_step(deployment: Deployment, kv_format: KvFormat, batch: int) -> Step | None:
    """One step of `batch` sessions of full length on every replica; None where the GPU's peaks are unknown.

    With pipeline parallelism the batch is cut into as many micro-batches as there are stages; a token passes through
    all stages, each as slow as the fullest, while the other micro-batches keep them busy.
    """
    gpu, parallel, spec = deployment.gpu, deployment.parallel, deployment.spec
    if not gpu.bytes_per_s or not peak_flops(gpu):
        return None
    ops = operations(spec, deployment.max_model_len, kv_format, parallel)
    stages, share = parallel.pp, cdiv(batch, parallel.pp)
    centre = step_seconds(ops, share, gpu, CENTRE, parallel)
    return Step(
        seconds=stages * sum(centre.values()),
        low_seconds=stages * sum(step_seconds(ops, share, gpu, BEST, parallel).values()),
        high_seconds=stages * sum(step_seconds(ops, share, gpu, WORST, parallel).values()),
        bound=max(centre, key=lambda k: centre[k]),
        read_bytes=int(sum(op.count * op_bytes(op, share, parallel.dp) for op in ops if op.kind != "collective")),
        flops=sum(op.count * op.flops for op in ops) * share,
    )
