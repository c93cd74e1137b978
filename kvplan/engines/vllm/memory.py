"""vLLM's memory rule: what `gpu_memory_utilization` of the total leaves after weights, libraries, peaks and graphs.

available = ceil(total x utilization) - weights - non-torch - activation peak - CUDA graphs (since 0.21, by default):
`v1/worker/gpu_worker.py`, `determine_available_memory`. The activation peak follows from the source
(`profile`); what only a running GPU shows (libraries, graphs) is estimated by cause from start-up ledgers on one
H100 (vLLM 0.19, llm-d-planner PR 205) and from public logs. docs/accuracy says how far off each line was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, with_given
from kvplan.engines.vllm.profile import profile_peak
from kvplan.engines.vllm.settings import is_moe
from kvplan.engines.vllm.start import is_multimodal, start, weight_formats
from kvplan.parallel import stage_sizes
from kvplan.units import GIB
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout
    from kvplan.engines.vllm.start import Start
    from kvplan.engines.vllm.versions import Rules

LARGEST_CAPTURE = 512
"""Tokens of the largest CUDA graph, and twice `max_num_seqs` where that is less (`VllmConfig._set_cudagraph_sizes`)."""


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int], rules: Rules) -> Budget:
    """The budget of one rank under the rules of a release."""
    total, share = deployment.gpu.memory_bytes, deployment.memory_fraction
    share = rules.gpu_memory_utilization if share is None else share
    lines = budget_lines(start(deployment, layout))
    found = Budget(
        gpu_total_bytes=total,
        requested_bytes=math.ceil(total * share),
        lines=lines if rules.cuda_graphs_deducted else lines[:-1],
        request_rule=f"gpu_memory_utilization {share:g} of the total",
        beside=() if rules.cuda_graphs_deducted else lines[-1:],
    )
    return with_given(found, given_bytes) if given_bytes else found


@lru_cache(maxsize=4096)
def budget_lines(start: Start) -> tuple[Line, ...]:
    """What one rank takes, whatever its memory: CUDA graphs come last."""
    return weights(start), non_torch(start), activation(start), cuda_graphs(start)


def weights(start: Start) -> Line:
    """Parameters as loaded on the fullest rank, with the multi-token prediction module where it drafts.

    16-bit weights were within 0.3 % of what engines print; quantized ones depend on which modules a copy leaves out.
    """
    spec = start.loaded()
    size = rank_bytes(spec, start.parallel, mtp=(start.drafts or "").endswith("mtp"))
    band = (0.03 if spec.quantization else 0.006) * size + 0.05 * GIB
    return Line.estimate("weights", size, "parameters of the fullest rank", below=band, above=band)


def non_torch(start: Start) -> Line:
    """What torch's allocator does not see: libraries, kernels' local memory, collectives' buffers.

    One rank 0.24 to 0.46 GiB on H100, 0.05 to 0.35 on smaller cards. Tensor parallelism over NVLink 2.07 to 2.21: NCCL
    channels, symmetric memory, workspaces of fused all-reduces; 0.6 to 1.5 where nothing is compiled, for only compiled
    graphs fuse. Over PCIe 0.2 to 0.7. A pipeline stage 0.07: its channels are made before the first snapshot. Unified
    memory also loses what the engine's processes and the page cache hold of it (9 to 12 GiB on a DGX Spark), and the
    network buffers that two of them pin in it (3 more).
    """
    tp, pp = start.parallel.tp, start.parallel.pp
    low, size, high, rule = 0.05, 0.25, 0.55, "libraries"
    if tp > 1 and _linked(start):
        low, size, high, rule = 0.9, 2.1, 2.6, "libraries and NVLink collectives"
        if start.eager:
            low, size = 0.4, 1.1
    elif tp > 1:
        low, size, high, rule = 0.1, 0.4, 1.2, "libraries and PCIe collectives"
    elif pp > 1:
        low, size, high = 0.0, 0.1, 0.4
    if start.gpu.memory_kind == "unified":
        host = 12 if tp > 1 else 9
        size, high, rule = size + host, high + 15, f"{rule}; host memory of the engine"
    return Line.estimate("non_torch", size * GIB, rule, below=(size - low) * GIB, above=(high - size) * GIB)


def _linked(start: Start) -> bool:
    """Whether ranks of one host speak over NVLink or the like."""
    interconnect = start.gpu.interconnect
    return interconnect is not None and interconnect.kind not in {"pcie", "ethernet"}


def activation(start: Start) -> Line:
    """The peak of the profile run above the weights."""
    peak = profile_peak(start)
    below, above = (0.05, 0.10) if peak.phase == "sampler" else (0.4, 0.6)
    encoder = GIB if is_multimodal(start.spec) else 0
    return Line.estimate(
        "activation",
        peak.total_bytes,
        f"{peak.phase} of the profile run",
        below=below * peak.phase_bytes + 0.5 * peak.workspace_bytes + 0.5 * peak.encoder_bytes,
        above=above * peak.phase_bytes + 0.2 * peak.workspace_bytes + peak.encoder_bytes + encoder + 0.1 * GIB,
    )


def cuda_graphs(start: Start) -> Line:
    """The pool of the largest graph, and what the driver keeps of every size captured, layer by layer.

    0.36 GiB and 15 MiB a layer for 51 sizes up to 512 tokens, fitted to 33 starts on one H100 (0.5 to 1.9 GiB); fewer
    sizes where `max_num_seqs` is small (0.32 GiB for 94 layers at 32 sequences). Hybrids half a layer's share (0.5 to
    1.1 GiB of 64 layers). More where kernels allocate inside the graph: 30 MiB a layer of MXFP4 experts, 0.2 GiB for
    other experts, 0.35 for latent attention. On unified memory, the difference of free memory counts host pages too.
    """
    if start.eager:
        return Line.exact("cuda_graphs", 0, "enforce_eager")
    spec, largest = start.spec, min(2 * start.sequences, LARGEST_CAPTURE)
    layers = max(stage_sizes(spec.num_hidden_layers, start.parallel.pp))
    families = {a.family for _, a in spec.mixers()}
    per_layer = (0.0075 if "recurrent" in families else 0.015) * capture_sizes(largest) / capture_sizes(LARGEST_CAPTURE)
    pool = 0.36 + (0.03 * layers if "mxfp4" in weight_formats(spec) else 0.2 * is_moe(spec))
    pool += 0.35 * bool({"mla", "compressed"} & families)
    size = per_layer * layers + pool * largest / LARGEST_CAPTURE
    host = 2.0 if start.gpu.memory_kind == "unified" else 0.0
    return Line.estimate(
        "cuda_graphs", (size + host) * GIB, f"{capture_sizes(largest)} graphs up to {largest} tokens",
        below=(0.6 * size + host) * GIB, above=(0.7 * size + host) * GIB,
    )  # fmt: skip


@cache
def capture_sizes(largest: int) -> int:
    """How many batch sizes are captured: 1, 2, 4, every 8 below 256, every 16 from there on."""
    return sum(n <= largest for n in (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_CAPTURE + 1, 16)))
