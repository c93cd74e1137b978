"""vLLM's memory rule: what `gpu_memory_utilization` of the total leaves after weights, libraries, peaks and graphs.

available = ceil(total x utilization) - weights - non-torch - activation peak - CUDA graphs (since 0.21, by default):
`v1/worker/gpu_worker.py`, `determine_available_memory`. The activation peak follows from the source
(`_vllm_profile`); what only a running GPU shows (libraries, graphs) is estimated by cause from start-up ledgers on one
H100 (vLLM 0.19, llm-d-planner PR 205) and from public logs. docs/accuracy says how far off each line was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, with_given
from kvplan.engines._vllm_profile import is_multimodal, profile_peak, weight_formats
from kvplan.engines._vllm_settings import is_moe
from kvplan.model import Quantization
from kvplan.parallel import stage_sizes
from kvplan.units import GIB
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines._vllm_versions import Rules
    from kvplan.engines.base import Deployment, Layout
    from kvplan.model import ModelSpec

LARGEST_CAPTURE = 512
"""Tokens of the largest CUDA graph, and twice `max_num_seqs` where that is less (`VllmConfig._set_cudagraph_sizes`)."""


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int], rules: Rules) -> Budget:
    """The budget of one rank under the rules of a release."""
    d, total = deployment, deployment.gpu.memory_bytes
    share = d.memory_fraction if d.memory_fraction is not None else rules.gpu_memory_utilization
    lines, graphs = (weights(d), non_torch(d), activation(d, layout, rules)), cuda_graphs(d, layout.max_num_seqs)
    deducted = rules.cuda_graphs_deducted
    return with_given(
        Budget(
            gpu_total_bytes=total,
            requested_bytes=math.ceil(total * share),
            lines=(*lines, graphs) if deducted else lines,
            request_rule=f"gpu_memory_utilization {share:g} of the total",
            beside=() if deducted else (graphs,),
        ),
        given_bytes,
    )


def weights(deployment: Deployment) -> Line:
    """Parameters as loaded on the fullest rank, with the multi-token prediction module where it drafts.

    16-bit weights were within 0.3 % of what engines print; quantized ones depend on which modules a copy leaves out.
    """
    spec, speculation = loaded(deployment), deployment.engine_args.get("speculative_config")
    drafts = isinstance(speculation, Mapping) and str(speculation.get("method")).endswith("mtp")
    size = rank_bytes(spec, deployment.parallel, mtp=drafts)
    band = (0.03 if spec.quantization else 0.006) * size + 0.05 * GIB
    return Line.estimate("weights", size, "parameters of the fullest rank", below=band, above=band)


def loaded(deployment: Deployment) -> ModelSpec:
    """The model as flags change it: another dtype, or 16-bit weights that are quantized while they load."""
    spec, args = deployment.spec, deployment.engine_args
    dtype = args.get("dtype") or "auto"
    if dtype != "auto":
        spec = replace(spec, torch_dtype={"half": "float16", "float": "float32"}.get(dtype, dtype))
    if args.get("quantization") == "fp8" and spec.quantization is None:
        spec = replace(spec, quantization=Quantization(quant_method="fp8", weight_format="fp8"))
    return spec


def non_torch(deployment: Deployment) -> Line:
    """What torch's allocator does not see: libraries, kernels' local memory, collectives' buffers.

    One rank 0.24 to 0.46 GiB on H100, 0.05 to 0.35 on smaller cards. Tensor parallelism over NVLink 2.07 to 2.21: NCCL
    channels, symmetric memory, workspaces of fused all-reduces; 0.6 to 1.5 where nothing is compiled, for only compiled
    graphs fuse. Over PCIe 0.2 to 0.7. A pipeline stage 0.07: its channels are made before the first snapshot. Unified
    memory also loses what the engine's processes and the page cache hold of it (9 to 12 GiB on a DGX Spark), and the
    network buffers that two of them pin in it (3 more).
    """
    d, pp = deployment, deployment.parallel.pp
    low, size, high, rule = 0.05, 0.25, 0.55, "libraries"
    if d.parallel.tp > 1 and _linked(d):
        low, size, high, rule = 0.9, 2.1, 2.6, "libraries and NVLink collectives"
        if d.engine_args.get("enforce_eager"):
            low, size = 0.4, 1.1
    elif d.parallel.tp > 1:
        low, size, high, rule = 0.1, 0.4, 1.2, "libraries and PCIe collectives"
    elif pp > 1:
        low, size, high = 0.0, 0.1, 0.4
    if d.gpu.memory_kind == "unified":
        host = 12 if d.parallel.tp > 1 else 9
        size, high, rule = size + host, high + 15, f"{rule}; host memory of the engine"
    return Line.estimate("non_torch", size * GIB, rule, below=(size - low) * GIB, above=(high - size) * GIB)


def _linked(deployment: Deployment) -> bool:
    """Whether ranks of one host speak over NVLink or the like."""
    interconnect = deployment.gpu.interconnect
    return interconnect is not None and interconnect.kind not in {"pcie", "ethernet"}


def activation(deployment: Deployment, layout: Layout, rules: Rules) -> Line:
    """The peak of the profile run above the weights."""
    peak = profile_peak(deployment, layout, rules)
    below, above = (0.05, 0.10) if peak.phase == "sampler" else (0.4, 0.6)
    encoder = GIB if is_multimodal(deployment.spec) else 0
    return Line.estimate(
        "activation",
        peak.total_bytes,
        f"{peak.phase} of the profile run",
        below=below * peak.phase_bytes + 0.5 * peak.workspace_bytes + 0.5 * peak.encoder_bytes,
        above=above * peak.phase_bytes + 0.2 * peak.workspace_bytes + peak.encoder_bytes + encoder + 0.1 * GIB,
    )


def cuda_graphs(deployment: Deployment, max_num_seqs: int) -> Line:
    """The pool of the largest graph, and what the driver keeps of every size captured, layer by layer.

    0.36 GiB and 15 MiB a layer for 51 sizes up to 512 tokens, fitted to 33 starts on one H100 (0.5 to 1.9 GiB); fewer
    sizes where `max_num_seqs` is small (0.32 GiB for 94 layers at 32 sequences). Hybrids half a layer's share (0.5 to
    1.1 GiB of 64 layers). More where kernels allocate inside the graph: 30 MiB a layer of MXFP4 experts, 0.2 GiB for
    other experts, 0.35 for latent attention. On unified memory, the difference of free memory counts host pages too.
    """
    if deployment.engine_args.get("enforce_eager"):
        return Line.exact("cuda_graphs", 0, "enforce_eager")
    spec, largest = deployment.spec, min(2 * max_num_seqs, LARGEST_CAPTURE)
    layers = max(stage_sizes(spec.num_hidden_layers, deployment.parallel.pp))
    families = {a.family for _, a in spec.mixers()}
    per_layer = (0.0075 if "recurrent" in families else 0.015) * capture_sizes(largest) / capture_sizes(LARGEST_CAPTURE)
    pool = 0.36 + (0.03 * layers if "mxfp4" in weight_formats(spec) else 0.2 * is_moe(spec))
    pool += 0.35 * bool({"mla", "compressed"} & families)
    size = per_layer * layers + pool * largest / LARGEST_CAPTURE
    host = 2.0 if deployment.gpu.memory_kind == "unified" else 0.0
    return Line.estimate(
        "cuda_graphs", (size + host) * GIB, f"{capture_sizes(largest)} graphs up to {largest} tokens",
        below=(0.6 * size + host) * GIB, above=(0.7 * size + host) * GIB,
    )  # fmt: skip


def capture_sizes(largest: int) -> int:
    """How many batch sizes are captured: 1, 2, 4, every 8 below 256, every 16 from there on."""
    return sum(n <= largest for n in (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_CAPTURE + 1, 16)))
