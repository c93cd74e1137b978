"""SGLang's memory rule: `mem_fraction_static` of the memory free before loading holds weights and pools.

pool = free_now - free_before x (1 - f): activations, CUDA graphs and workspaces must fit the slack beside it (read in
sglang 0.5.23 `memory_hook.py` and `pool_configurator.py`; two public ledgers agree within 0.2 GB).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.budget import Budget, Line, with_given
from kvplan.units import GIB, MIB
from kvplan.weights import rank_bytes

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout

CONTEXT_BYTES = GIB // 2
"""What the driver and the CUDA context take before anything is loaded: 0.51 GiB free below the total on an H100."""
_TIERS = ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512))


def budget(deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
    """The budget of one rank. Activations and graphs are measured beside it: they must fit the slack."""
    d = deployment
    free = d.gpu.memory_bytes - CONTEXT_BYTES
    fraction = d.memory_fraction or default_fraction(d, layout.max_num_batched_tokens)
    size = rank_bytes(d.spec, d.parallel)
    return with_given(
        Budget(
            gpu_total_bytes=d.gpu.memory_bytes,
            requested_bytes=int(free * fraction),
            lines=(
                Line.estimate("weights", size, "parameters of the fullest rank", below=0.02 * size, above=0.03 * size),
                collectives(d),
            ),
            request_rule=f"mem_fraction_static {fraction:g} of what is free before loading",
            beside=(
                Line.exact("slack", int(free * (1 - fraction)), "activations, CUDA graphs and workspaces live here"),
            ),
        ),
        given_bytes,
    )


def collectives(deployment: Deployment) -> Line:
    """What ranks take before loading (1.0 GiB on H100, as vLLM's first snapshot shows), and libraries after it."""
    if deployment.parallel.tp * deployment.parallel.dp > 1:
        return Line.estimate("non_torch", 1.4 * GIB, "libraries and collectives", below=1.0 * GIB, above=1.5 * GIB)
    return Line.estimate("non_torch", 0.2 * GIB, "libraries", below=0.2 * GIB, above=0.5 * GIB)


def default_fraction(deployment: Deployment, chunked_prefill: int) -> float:
    """1 - reserved / memory, reserved by prefill size, ranks and captured batch sizes, in MB (`memory_hook.py`)."""
    d = deployment
    gpu_mb, ranks = d.gpu.memory_bytes / MIB, d.parallel.tp * d.parallel.dp
    reserved = 512 + 1.5 * max(chunked_prefill, 2048) + ranks * d.parallel.pp / 8 * 1024
    reserved += _graphs_mb(d, ranks)
    if gpu_mb > 60_000:
        reserved = max(reserved, 10_240)
    return round((gpu_mb - reserved) / gpu_mb, 3)


def _graphs_mb(deployment: Deployment, ranks: int) -> float:
    """Decode graphs by the largest captured batch; prefill graphs by their buckets (about 50), flat for MLA."""
    d, gib = deployment, deployment.gpu.memory_bytes / GIB
    small, large = next(((a, b) for limit, a, b in _TIERS if gib < limit), (512, 512))
    batch = small if ranks < 4 else large
    latent = any(a.family == "mla" for _, a in d.spec.mixers())
    attention_dp = (
        (3 * batch * d.parallel.dp + (1.5 * batch * d.parallel.dp if batch > 300 else 0)) if d.parallel.dp > 1 else 0
    )
    return 2 * batch + attention_dp + (1536 if latent else 8 * 50)
