"""What changed from one vLLM release to the next, as one table of data.

Each `Change` names the first release that has a rule and the newest release, read from its own wheel, that lacks it:
the boundary lies between the two. Patch releases in between are taken as the minor release that they belong to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Literal

from kvplan.errors import BadInput, Unsupported

OLDEST, NEWEST = "0.6", "0.33"
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+-]?[a-z0-9][\w.+-]*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one release plans its cache. The values here are those of vLLM 0.6; `CHANGES` says what came after."""

    release: tuple[int, int] = (0, 6)
    engine_core: Literal["v0", "v1"] = "v0"
    mla_cache: Literal["padded heads", "latent, rows of 256 B", "latent"] = "padded heads"
    printed_tokens: Literal["blocks", "blocks per group", "concurrency"] = "blocks"
    concurrency: Literal["tokens", "bytes", "blocks"] = "tokens"
    hybrid_groups: bool = False
    chunked_groups: bool = False
    groups_over_stages: bool = False
    mixed_pages_in_one_group: bool = False
    scales_small_pages: bool = False
    pads_attention_pages: bool = False
    group_padding: float = 1.0
    packing: Literal["none", "tuples", "slots", "overlay"] = "none"
    packed_fit: Literal["tuples", "blocks"] = "tuples"
    full_group_first: bool = True
    block_size_from: Literal["default", "mla defaults", "backend"] = "default"
    large_mla_pages: Literal["cutlass 128", "flashinfer 64"] = "cutlass 128"
    hybrid_mla_block: Literal["fixed 64", "kernel", "at least 128"] = "fixed 64"
    sliding_block_of_its_own: bool = False
    skip_layers_align: bool = False
    mamba_align: bool = False
    mamba_all: Literal["unknown", "kept", "refused", "align"] = "unknown"
    hybrid_prefix_caching: bool = False
    mamba2_checkpoint: bool = False
    gdn_checkpoint: bool = False
    nemotron_fp32_state: bool = False
    qwen35_fp32_state: bool = False
    batches_in_flight: bool = False
    async_pipeline: Literal["never", "dense", "always"] = "never"
    async_ngram: bool = False
    retains_for_mtp: bool = False
    fit_check: Literal["layers", "groups"] = "layers"
    null_block_in_fit: bool = False
    modelopt_kv_dtype: bool = False
    glm_dsa_fp8_on_sm100: bool = False
    a100_small_batch: bool = False
    batch_by_160_gib: bool = False
    gb10_small_batch: bool = False
    gpu_memory_utilization: float = 0.9
    cuda_graphs_deducted: bool = False
    top_p: Literal["sorted", "masked", "flashinfer"] = "sorted"
    keeps_expert_workspace: bool = False
    expert_chunk_tokens: int | None = 32768
    refines_fp8_experts: bool = False
    one_kv_layout: bool = False
    sequence_ranks: Literal["none", "attention", "beside states"] = "none"

    @property
    def version(self) -> str:
        """`0.33`."""
        return f"{self.release[0]}.{self.release[1]}"


@dataclass(frozen=True, slots=True)
class Change:
    """`rule` takes `value` from release `since` on; `absent_in` is the newest release read that lacks it."""

    rule: str
    value: object
    since: str
    absent_in: str


CHANGES = (
    Change("mla_cache", "latent, rows of 256 B", "0.7", "0.6.6.post1"),
    Change("mla_cache", "latent", "0.8", "0.7.3"),
    Change("engine_core", "v1", "0.8", "0.7.3"),
    Change("block_size_from", "mla defaults", "0.8", "0.7.3"),
    Change("hybrid_groups", True, "0.9", "0.8.5"),
    Change("printed_tokens", "blocks per group", "0.9", "0.8.5"),
    Change("concurrency", "bytes", "0.9", "0.8.5"),
    Change("a100_small_batch", True, "0.9", "0.8.5"),
    Change("sequence_ranks", "attention", "0.10", "0.9.2"),
    Change("groups_over_stages", True, "0.11", "0.10.2"),
    Change("mixed_pages_in_one_group", True, "0.11", "0.10.2"),
    Change("scales_small_pages", True, "0.12", "0.11.2"),
    Change("group_padding", 1.25, "0.12", "0.11.2"),
    Change("expert_chunk_tokens", 16384, "0.12", "0.11.2"),
    Change("nemotron_fp32_state", True, "0.13", "0.12.0"),
    Change("keeps_expert_workspace", True, "0.13", "0.12.0"),
    Change("chunked_groups", True, "0.14", "0.13.0"),
    Change("modelopt_kv_dtype", True, "0.14", "0.13.0"),
    Change("fit_check", "groups", "0.14", "0.13.0"),
    Change("mamba_align", True, "0.15", "0.14.1"),
    Change("mamba_all", "kept", "0.15", "0.14.1"),
    Change("large_mla_pages", "flashinfer 64", "0.15", "0.14.1"),
    Change("qwen35_fp32_state", True, "0.17", "0.16.0"),
    Change("top_p", "masked", "0.17", "0.16.0"),
    Change("block_size_from", "backend", "0.18", "0.17.1"),
    Change("group_padding", 1.5, "0.18", "0.17.1"),
    Change("expert_chunk_tokens", None, "0.18", "0.17.1"),
    Change("printed_tokens", "concurrency", "0.20", "0.19.1"),
    Change("gpu_memory_utilization", 0.92, "0.20", "0.19.1"),
    Change("hybrid_mla_block", "kernel", "0.20", "0.19.1"),
    Change("packing", "tuples", "0.20", "0.19.1"),
    Change("cuda_graphs_deducted", True, "0.21", "0.20.2"),
    Change("top_p", "flashinfer", "0.21", "0.20.2"),
    Change("packing", "slots", "0.23", "0.22.1"),
    Change("pads_attention_pages", True, "0.24", "0.23.0"),
    Change("sliding_block_of_its_own", True, "0.25", "0.24.0"),
    Change("skip_layers_align", True, "0.25", "0.24.0"),
    Change("hybrid_prefix_caching", True, "0.26", "0.25.1"),
    Change("batches_in_flight", True, "0.26", "0.25.1"),
    Change("async_pipeline", "dense", "0.26", "0.25.1"),
    Change("concurrency", "blocks", "0.27", "0.26.0"),
    Change("packing", "overlay", "0.27", "0.26.0"),
    Change("hybrid_mla_block", "at least 128", "0.27", "0.26.0"),
    Change("batch_by_160_gib", True, "0.28", "0.27.1"),
    Change("retains_for_mtp", True, "0.28", "0.27.1"),
    Change("null_block_in_fit", True, "0.29", "0.28.0"),
    Change("full_group_first", False, "0.29", "0.28.0"),
    Change("packed_fit", "blocks", "0.29", "0.28.0"),
    Change("one_kv_layout", True, "0.29", "0.28.0"),
    Change("async_pipeline", "always", "0.29", "0.28.0"),
    Change("refines_fp8_experts", True, "0.29", "0.28.0"),
    Change("sequence_ranks", "beside states", "0.31", "0.30.0"),
    Change("mamba2_checkpoint", True, "0.32", "0.31.0"),
    Change("mamba_all", "refused", "0.32", "0.31.0"),
    Change("glm_dsa_fp8_on_sm100", True, "0.32", "0.31.0"),
    Change("mamba_all", "align", "0.33", "0.32.0"),
    Change("gdn_checkpoint", True, "0.33", "0.32.0"),
    Change("async_ngram", True, "0.33", "0.32.0"),
    Change("gb10_small_batch", True, "0.33", "0.32.0"),
)
"""Ordered by release. Checked in the source of the wheels named; vllm.md brackets the same boundaries more widely."""


def release_of(version: str) -> tuple[int, int]:
    """`"0.19.1.post1"` -> (0, 19); refuses what is no version, and releases outside those whose rules are known."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise BadInput(f"vllm@{version}: not a release; write vllm@{NEWEST} or vllm@0.19.1")
    release = (int(match[1]), int(match[2]))
    if not _minor(OLDEST) <= release <= _minor(NEWEST):
        raise Unsupported(f"vllm@{version}: the cache rules of vLLM {OLDEST} to {NEWEST} are known")
    return release


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@cache
def rules(version: str | None) -> Rules:
    """The rules of a release; of the newest known where `version` is None."""
    release = release_of(version or NEWEST)
    values = {c.rule: c.value for c in CHANGES if _minor(c.since) <= release}
    return replace(Rules(), release=release, **values)  # type: ignore[arg-type]


def default_utilization(version: str | None = None) -> float:
    """`gpu_memory_utilization` where the user states none."""
    return rules(version).gpu_memory_utilization


def rule_names() -> frozenset[str]:
    """Every rule that a `Change` can name."""
    return frozenset(f.name for f in fields(Rules)) - {"release"}
