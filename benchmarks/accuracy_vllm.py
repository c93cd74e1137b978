"""How many rows of vLLM's own planning code this engine equals: `python benchmarks/accuracy_vllm.py [folder of data]`.

Prints a section of docs/accuracy.md. A row is one model on one kind of 80 GiB GPU under one release, with every figure
that vLLM's planner returned for it, or with the reason why it refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.engines.base import Deployment
from kvplan.engines.vllm import ENGINE
from kvplan.errors import KvplanError
from kvplan.gpu import GpuSpec
from kvplan.hf import import_config
from kvplan.model import ModelSpec
from kvplan.parallel import Parallelism

FIELDS = (
    "block_size", "scheduler_block_size", "bytes_per_block", "num_blocks", "kv_cache_size_tokens", "max_concurrency",
    "blocks_per_request", "max_num_batched_tokens", "max_num_seqs", "max_in_flight_tokens", "max_model_len",
)  # fmt: skip
"""What of a row is compared, to the last digit."""
_OWN_FIELDS = {"max_model_len", "block_size", "max_num_seqs", "max_num_batched_tokens"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row, and what differs, as `field: ours, theirs`; nothing where all is equal."""

    row: Mapping[str, Any]
    differences: tuple[str, ...]


def golden_rows(folder: Path) -> list[dict[str, Any]]:
    """All rows."""
    rows: list[dict[str, Any]] = json.loads((folder / "golden_vllm.json").read_text())
    return rows


def verdict(row: Mapping[str, Any], folder: Path) -> Verdict:
    """Plan what the row planned, and compare."""
    try:
        ours = answer(row, _model(folder / row["config"]))
    except KvplanError as error:
        ours = {"error": str(error)}
    if not row["ok"]:
        same = "error" in ours and _words(ours["error"]) in _words(row["error"])
        return Verdict(row, () if same else (f"error: {ours.get('error', 'planned')}, {row['error']}",))
    if "error" in ours:
        return Verdict(row, (f"error: {ours['error']}, planned",))
    return Verdict(row, tuple(f"{k}: {ours[k]}, {row[k]}" for k in FIELDS if ours[k] != row[k]))


def answer(row: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """The row's figures as this engine has them."""
    layout = ENGINE.layout(deployment(row, spec))
    stages = layout.geometry.stage_bytes
    pools = row["mem"] if isinstance(row["mem"], list) else [row["mem"]] * len(stages)
    refusal = layout.refusal(min(pools))
    if refusal is not None:
        return {"error": refusal}
    capacity = layout.capacity_of_stages(pools)
    return {
        "block_size": layout.block_size,
        "scheduler_block_size": layout.scheduler_block_size,
        "bytes_per_block": list(stages),
        "num_blocks": capacity.num_blocks,
        "kv_cache_size_tokens": capacity.kv_tokens,
        "max_concurrency": capacity.max_concurrency,
        "blocks_per_request": list(capacity.blocks_per_request),
        "max_num_batched_tokens": layout.max_num_batched_tokens,
        "max_num_seqs": layout.max_num_seqs,
        "max_in_flight_tokens": layout.max_in_flight_tokens,
        "max_model_len": capacity.max_model_len,
    }


def deployment(row: Mapping[str, Any], spec: ModelSpec) -> Deployment:
    """A row in this planner's words."""
    args = dict(row["engine_args"])
    return Deployment(
        spec=spec,
        gpu=_gpu(tuple(row["cap"])),
        parallel=Parallelism(tp=row["tp"], pp=row["pp"], dcp=row["dcp"]),
        version=row["vllm"],
        kv_dtype=args.pop("kv_cache_dtype", "auto"),
        **{k: args.pop(k) for k in _OWN_FIELDS & args.keys()},
        engine_args={**args, "usage": row["usage"]},
    )


@cache
def _gpu(capability: tuple[int, int]) -> GpuSpec:
    sources = dict.fromkeys(("memory_bytes", "compute_capability"), "the rows assume 80 GiB")
    return GpuSpec(
        name="80 GiB", vendor="nvidia", architecture="any", memory_bytes=80 * 2**30, compute_capability=capability,
        sources=sources,
    )  # fmt: skip


@cache
def _model(path: Path) -> ModelSpec:
    return import_config(path)


def _words(text: str) -> str:
    """A reason without how the engine wraps it: spaces, and where the row's text is cut off."""
    return " ".join(text.removeprefix("vLLM: ").split()).partition(" Try increasing")[0].replace(": Input", " Input")


def section(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The lines of the section."""
    known = list(verdicts)
    yield "## vLLM: block for block"
    yield ""
    yield "Every figure of a row must be equal to the last digit; a refusal must give vLLM's own reason."
    yield ""
    yield "| release | rows | equal | of them refusals |"
    yield "|---|---|---|---|"
    total = Counter(v.row["vllm"] for v in known)
    equal = Counter(v.row["vllm"] for v in known if not v.differences)
    refused = Counter(v.row["vllm"] for v in known if not v.differences and not v.row["ok"])
    for release in sorted(total):
        yield f"| {release} | {total[release]} | {equal[release]} | {refused[release]} |"
    yield ""
    for v in known:
        if v.differences:
            yield f"- {v.row['id']} ({v.row['vllm']}): {'; '.join(v.differences)}"


def main() -> None:
    """Score and print."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(
        sys.argv[1] if len(sys.argv) > 1 else os.environ.get("KVPLAN_GROUNDTRUTH") or root / "shared" / "data"
    )
    print("\n".join(section(verdict(row, folder) for row in golden_rows(folder))))


if __name__ == "__main__":
    main()
