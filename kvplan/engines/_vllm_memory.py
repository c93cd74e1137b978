"""vLLM's memory rule: what `gpu_memory_utilization` of the total leaves after weights, peaks and graphs.

available = ceil(total x utilization) - weights - non-torch - activation peak - CUDA graphs (since 0.21, by default).
The four are estimated by cause from start-up ledgers of 28 settings on one H100 (vLLM 0.19, llm-d-planner PR 205) and
from public logs; each rule names its cause and its band (docs/accuracy says how far off they were).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, override
from kvplan.mlp import MoeMlp
from kvplan.weights import params_by_part, rank_bytes

if TYPE_CHECKING:
    from kvplan.engines._vllm_versions import Rules
    from kvplan.engines.base import Deployment, Layout

GIB = 2**30
SAMPLER_BYTES = 14
"""Per vocabulary entry and sequence: fp32 logits, their sorted copy with indices and the probabilities live at once in
the sampler's warm-up (R2 0.96 over 28 settings; independent of depth, width and TP, because logits are gathered)."""


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int], rules: Rules) -> Budget:
    """The budget of one rank under the rules of a release."""
    d, total = deployment, deployment.gpu.memory_bytes
    share = d.memory_fraction if d.memory_fraction is not None else rules.gpu_memory_utilization
    lines = [weights(d), non_torch(d), activation(d, layout)]
    beside: list[Line] = []
    if not d.engine_args.get("enforce_eager"):
        graphs = cuda_graphs(d)
        (lines if rules.cuda_graphs_deducted else beside).append(graphs)
    return Budget(
        gpu_total_bytes=total,
        requested_bytes=math.ceil(total * share),
        lines=override(lines, given_bytes),
        request_rule=f"gpu_memory_utilization {share:g} of the total",
        beside=tuple(beside),
    )


def weights(deployment: Deployment) -> Line:
    """Parameters as loaded on the fullest rank, a draft's included."""
    size = rank_bytes(deployment.spec, deployment.parallel)
    band = max(0.02 * size, 0.1 * GIB)
    return Line.estimate("weights", size, "parameters of the fullest rank", below=band, above=band)


def non_torch(deployment: Deployment) -> Line:
    """CUDA context, libraries and collectives: what torch's allocator does not see.

    One rank 0.25 GiB (0.05 to 0.5); a pipeline stage 0.07; tensor parallelism over NVLink 2.07 to 2.17 on Hopper (NCCL
    and symmetric-memory buffers), 0.2 to 0.3 over PCIe, more on larger boxes.
    """
    d = deployment
    nvlink = d.gpu.interconnect is not None and d.gpu.interconnect.kind != "pcie"
    if d.parallel.tp > 1 and nvlink:
        return Line.estimate("non_torch", 2.1 * GIB, "context and NVLink collectives", below=1.6 * GIB, above=1.0 * GIB)
    if d.parallel.tp > 1:
        return Line.estimate("non_torch", 0.3 * GIB, "context and PCIe collectives", below=0.2 * GIB, above=1.5 * GIB)
    return Line.estimate("non_torch", 0.25 * GIB, "context and libraries", below=0.2 * GIB, above=0.25 * GIB)


def activation(deployment: Deployment, layout: Layout) -> Line:
    """The peak of the profile run: the sampler over all sequences, or one forward pass, and the experts' workspace."""
    d, spec = deployment, deployment.spec
    last_stage = d.parallel.pp == 1
    sampler = SAMPLER_BYTES * spec.vocab_size * layout.max_num_seqs if last_stage else 0
    extra = 0.18 * GIB + moe_workspace(d, layout.max_num_batched_tokens) + encoder_peak(d)
    forward = forward_peak(d, layout.max_num_batched_tokens)
    size = max(sampler, forward) + extra
    rule = "one pass of max_num_batched_tokens"
    if sampler >= forward:
        rule = f"{SAMPLER_BYTES} B x vocabulary x max_num_seqs"
    return Line.estimate("activation", size, rule, below=0.15 * size + 0.1 * GIB, above=0.35 * size + 0.2 * GIB)


def forward_peak(deployment: Deployment, tokens: int) -> int:
    """Hidden states and the widest MLP activation of one layer, in 16 bit."""
    d, spec = deployment, deployment.spec
    widths = [getattr(g.mlp, "intermediate_size", 0) for g in spec.layer_groups if g.mlp]
    widest = max(widths, default=0) * 3 // d.parallel.tp
    return 2 * tokens * (3 * spec.hidden_size + widest)


def moe_workspace(deployment: Deployment, tokens: int) -> int:
    """Two scratch tensors of fused experts: tokens x chosen experts x (the wider of gate-up and hidden), down's input.

    Kernels for mxfp4 weights need none (gpt-oss shows 0.19 GiB above the sampler).
    """
    d, size = deployment, 0
    if d.spec.quantization and d.spec.quantization.weight_format == "mxfp4":
        return 0
    for group in d.spec.layer_groups:
        if isinstance(group.mlp, MoeMlp):
            inner = -(-group.mlp.moe_intermediate_size // (1 if d.parallel.ep > 1 else d.parallel.tp))
            rows = tokens * group.mlp.num_experts_per_tok
            size = max(size, 2 * rows * (max(2 * inner, d.spec.hidden_size) + inner))
    return size


def encoder_peak(deployment: Deployment) -> int:
    """A multimodal encoder's profile run (0.3 to 0.5 GiB above text models)."""
    return int(0.3 * GIB) if params_by_part(deployment.spec).get("vision") else 0


def cuda_graphs(deployment: Deployment) -> Line:
    """0.37 GiB and 17 MiB a layer, less where ranks share the layer (36 settings, 0.5 to 1.85 GiB)."""
    d = deployment
    layers = -(-d.spec.num_hidden_layers // d.parallel.pp)
    experts = any(isinstance(g.mlp, MoeMlp) for g in d.spec.layer_groups)
    size = (0.37 + 0.0167 * layers + (0.4 if experts else 0.0)) * GIB
    return Line.estimate("cuda_graphs", size, "0.37 GiB and 17 MiB a layer", below=0.5 * size, above=0.7 * size)
