"""Compact start-up logs of models whose figures can be checked by hand, and what reconciling them says."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvplan.gpu import GpuSpec
from kvplan.identify import Device
from kvplan.logs import Observed, read_log
from kvplan.model import ModelSpec
from kvplan.reconcile import Comparison, explained
from kvplan.reconcile.predict import predict
from kvplan.reconcile.scenario import scenario_of
from tests.small import BARE_GPU, GROUPED

UNIFIED_GPU = replace(BARE_GPU, name="shared", memory_kind="unified")


def read(*lines: str) -> Observed:
    """What a log of these lines says."""
    return read_log(io.BytesIO("\n".join(lines).encode() + b"\n"))


def vllm(*lines: str, version: str | None = "0.19.0", **flags: Any) -> Observed:
    """A V1 start-up: the version and the flags, then `lines`, each as `rank: text` or as the engine core's text."""
    head = [f"(APIServer pid=1) INFO [api_server.py:1] vLLM API server version {version}"] if version else []
    stated = {"model": "m", **flags}
    head.append(f"(APIServer pid=1) INFO [utils.py:1] non-default args: {stated!r}")
    return read(*head, *map(_line, lines))


def _line(text: str) -> str:
    rank, colon, rest = text.partition(": ")
    process = rank if colon and rank.startswith("Worker") else "EngineCore"
    return f"({process} pid=7) INFO [x.py:1] {rest if process == rank else text}"


def pool(gib: str, rank: str = "") -> str:
    """The line of the pool that is left."""
    return (f"{rank}: " if rank else "") + f"Available KV cache memory: {gib} GiB"


def tokens(count: int) -> str:
    """The token line."""
    return f"GPU KV cache size: {count:,} tokens"


def concurrency(length: int, sessions: float) -> str:
    """The concurrency line."""
    return f"Maximum concurrency for {length:,} tokens per request: {sessions:.2f}x"


def blocks(count: int) -> str:
    """The line of blocks."""
    return f"vllm cache_config_info with initialization after num_gpu_blocks is: {count}"


def ledger(requested: str, weights: str, activation: str, non_torch: str) -> tuple[str, ...]:
    """The lines that vLLM 0.19 prints at its debug level."""
    return (
        f"Initial free memory: 79.40 GiB; Requested memory: 0.9 (util), {requested} GiB",
        f"Total non KV cache memory: 9.00GiB; torch peak memory increase: {activation}GiB; "
        f"non-torch forward increase memory: {non_torch}GiB; weights memory: {weights}GiB.",
    )


def held(
    observed: Observed,
    spec: ModelSpec = GROUPED,
    gpu: GpuSpec = BARE_GPU,
    unsaid: Mapping[str, Any] | None = None,
) -> dict[str, Comparison]:
    """Comparisons by quantity, with their causes."""
    scenario, _ = scenario_of(observed, spec, gpu, unsaid)
    return {c.quantity: c for c in explained(observed, predict(scenario), Device(gpu))}
