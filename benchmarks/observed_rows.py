"""A row of the observations as a question to kvplan: which engine, release, model, GPU and flags it states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.observed_models import Model, find_model, stated
from kvplan.catalog import load_gpu
from kvplan.errors import KvplanError
from kvplan.gpu import GpuSpec
from kvplan.plan import Scenario
from kvplan.units import GIB

ENGINES = {
    "vllm": "vllm", "vllm (fork)": "vllm", "vllm (seen through LMCache)": "vllm", "vllm-ascend": "vllm",
    "sglang": "sglang", "sglang (XPU)": "sglang", "sglang + ktransformers": "sglang", "llama.cpp": "llama.cpp",
    "llama.cpp (LM Studio 0.4.12, metal runtime 2.14.0)": "llama.cpp", "ik_llama.cpp": "llama.cpp",
    "tensorrt-llm": "tensorrt-llm", "tensorrt-llm (Dynamo docs)": "tensorrt-llm",
}  # fmt: skip
"""Engines whose rules kvplan has, under the names of the rows."""
V0_RELEASES = ("0.6", "0.7")
V1_RELEASES = tuple(f"0.{minor}" for minor in range(9, 34))
THREADS = (
    (11500, "0.6"), (14500, "0.7"), (18300, "0.8"), (20700, "0.9"), (25500, "0.10"), (29300, "0.11"), (30200, "0.12"),
    (31500, "0.13"), (32800, "0.14"), (34300, "0.15"), (35500, "0.16"), (37200, "0.17"), (38500, "0.18"),
)  # fmt: skip
"""Highest number of a vLLM issue that was opened while a release was the newest; beyond, releases come too fast."""
GPUS = {
    "79.22 GiB class (H100/A100 80GB)": "h100", "RTX 3090 (23.58 GiB)": "rtx-3090", "DGX Spark GB10 (2x)": "gb10",
    "RTX PRO 6000 Blackwell Max-Q": "rtx-pro-6000", "RTX PRO 6000 96GB (4x)": "rtx-pro-6000", "GH200 96GB": "gh200",
    "RTX 3090 (16x)": "rtx-3090", "24 GB Ada (L4 class)": "l4", "Ascend 910B3": "ascend-910b3",
    "H100 NVL (Standard_NC80adis_H100_v5)": "h100-nvl", "RTX 4090 24GB": "rtx-4090", "V100 32GB": "v100-32gb",
    "Jetson AGX Thor 128GB": "jetson-agx-thor", "Ascend NPU 60.96 GiB": "ascend-910b3", "Ascend 910B": "ascend-910b3",
    "DGX Spark (GB10)": "gb10", "DGX Spark GB10": "gb10",
}  # fmt: skip
"""GPUs that the catalogue spells otherwise."""
RELATIVES = {"RTX 4060 8GB": "rtx-4090", "SM120 (RTX 5090 class / RTX PRO)": "rtx-5090", "SM120": "rtx-5090"}
"""The nearest relative of a GPU that the catalogue does not have or the row does not name; its memory is not taken."""
STAND_INS = ("h100", "b200")
"""What a row may mean that names no GPU: Hopper or Blackwell, which choose other kernels, records and blocks."""
KV_DTYPES = {"auto (bf16)": "bf16", "fp8 (fp8_ds_mla)": "fp8_ds_mla", "f16": "fp16", "fp8_e4m3": "fp8"}


@dataclass(frozen=True, slots=True)
class Row:
    """One observation: what was stated, and the model it means (None where it says too little)."""

    raw: Mapping[str, Any]
    model: Model | None

    def get(self, name: str) -> Any:
        """A stated field; None where it is not."""
        return self.raw.get(name)

    @property
    def row_id(self) -> str:
        """Its id."""
        return str(self.raw["id"])

    @property
    def engine(self) -> str | None:
        """The engine as kvplan names it; None for engines whose rules it does not have."""
        return ENGINES.get(self.raw["engine"])

    @property
    def release(self) -> str | None:
        """The vLLM release, `0.19`, as stated, or as the number of a vLLM issue implies."""
        text = str(self.raw["engine_version"] or "")
        minors = [int(minor) for minor in re.findall(r"\b0\.(\d+)", text)]
        if "V0" in text:
            return V0_RELEASES[-1]
        if minors and max(minors) > 1:
            return f"0.{max(minors)}"
        thread = re.search(r"github\.com/vllm-project/vllm/(?:issues|pull)/(\d+)", str(self.raw["url"]))
        return next((r for last, r in THREADS if thread and int(thread[1]) <= last), None)

    def releases(self) -> tuple[str, ...]:
        """The release, or all whose log has the lines that the row shows: the old engine counted CPU blocks."""
        if self.engine != "vllm":
            return ("",)
        if self.get("num_cpu_blocks") is not None and self.release in {None, "0.6", "0.7", "0.8"}:
            return V0_RELEASES
        return (self.release,) if self.release else V1_RELEASES

    @property
    def pool_bytes(self) -> int | None:
        """The printed pool of one GPU: the memory line, K and V, or the one KV size."""
        k, v = self.get("k_size_gb"), self.get("v_size_gb")
        size = self.get("available_kv_gib") or (k + v if k and v else None) or self.get("kv_size_gb")
        return int(size * GIB) if size and size > 0 else None

    @property
    def pool_rounding_bytes(self) -> int:
        """Half of the last printed digit; K and V round each for itself."""
        size = self.get("available_kv_gib") or self.get("k_size_gb") or self.get("kv_size_gb") or 0.0
        digits = len(str(size).partition(".")[2]) if str(size) != str(round(size)) else 0
        digits = 2 if digits == 1 and not str(size).endswith(".0") else digits
        return int((2 if not self.get("available_kv_gib") and self.get("k_size_gb") else 1) * GIB * 0.5 * 10.0**-digits)

    @property
    def gpu(self) -> GpuSpec:
        """The GPU with the memory that the row prints; a stand-in where it names none."""
        name = self.get("gpu") or STAND_INS[0]
        try:
            gpu = load_gpu(GPUS.get(name) or RELATIVES.get(name) or name)
        except KvplanError:
            gpu = load_gpu(STAND_INS[0])
        return replace(gpu, memory_bytes=int(self.memory_gib * GIB)) if self.memory_gib else gpu

    @property
    def memory_gib(self) -> float | None:
        """Memory as the engine prints it, with decimals; whole numbers are what the box says."""
        memory = self.get("gpu_memory_gib")
        return memory if memory and round(memory) != memory else None

    @property
    def memory_known(self) -> bool:
        """Whether the row says how much memory one GPU has: it prints it, or names one kind of GPU of the catalogue."""
        name = self.get("gpu") or ""
        try:
            return bool(self.memory_gib or load_gpu(GPUS.get(name, name)))
        except KvplanError:
            return False

    def scenarios(self, release: str) -> Iterator[Scenario]:
        """The question under one release, on each kind of GPU that the row may mean."""
        question = self.scenario(release)
        yield question
        if not self.get("gpu") and not self.memory_gib:
            yield replace(question, gpu=load_gpu(STAND_INS[1]))

    def scenario(self, release: str) -> Scenario:
        """The question under one release."""
        if self.model is None or self.engine is None:
            raise LookupError(f"{self.row_id}: no model or engine")
        tp, dp = self.get("tp") or 1, self.get("dp") or 1
        shared = self.get("enable_dp_attention") and tp >= dp
        return Scenario(
            model=self.model.spec,
            gpu=self.gpu,
            engine=self.engine + (f"@{release}" if release else ""),
            tp=1 if self.engine == "llama.cpp" else tp // dp if shared else tp,
            pp=self.get("pp") or 1,
            dp=dp,
            dcp=self.get("dcp") or 1,
            ep=(tp if shared else tp * dp) if self.get("ep") else 1,
            context=self.get("max_model_len") or self.get("cells") or self.model.spec.max_position_embeddings or 8192,
            kv_dtype=KV_DTYPES.get(self.get("kv_cache_dtype") or "auto", self.get("kv_cache_dtype") or "auto"),
            gpu_memory_utilization=self.get("gpu_memory_utilization") or self.get("mem_fraction_static"),
            max_num_seqs=self.get("max_num_seqs"),
            max_num_batched_tokens=self.get("max_num_batched_tokens"),
            block_size=self._block_size,
            engine_args=self._engine_args(release),
        )

    @property
    def _block_size(self) -> int | None:
        """--block-size, where the line shows one that a flag sets; Ascend's default is 128."""
        if self.get("engine") == "vllm-ascend":
            return 128
        size = self.get("block_size")
        return size if size in (16, 32, 64, 128) else None

    def _engine_args(self, release: str) -> dict[str, Any]:
        args: dict[str, Any] = dict(self.get("engine_args") or {})
        if self.engine != "vllm":
            return args
        quant = self.get("quant")
        if self.get("enforce_eager"):
            args["enforce_eager"] = True
        if quant in ("float16", "float32", "fp16"):
            args["dtype"] = {"fp16": "float16"}.get(quant, quant)
        if quant == "fp8 / bfloat16" and self.model and self.model.spec.quantization is None:
            args["quantization"] = "fp8"
        if self.drafts and release not in V0_RELEASES:
            args["speculative_config"] = {"method": "mtp", "num_speculative_tokens": self.drafts}
        return args

    @property
    def drafts(self) -> int:
        """Tokens that multi-token prediction drafts; 1 where the row does not say."""
        text = self.get("speculative") or ""
        match = re.search(r"(?:k=|, )(\d+)", text)
        return 0 if "MTP" not in text else int(match[1]) if match else 1

    @property
    def unknown_drafter(self) -> bool:
        """Whether a drafter keeps layers of which nothing is published beside the row."""
        return any(name in (self.get("speculative") or "") for name in ("DFlash", "DSpark"))

    @property
    def part(self) -> str:
        """Which of an engine's pools the row is of: `swa`, `full` or `kv`."""
        note = self.get("swa_note") or ""
        if self.get("kv_size_gb") or self.engine == "vllm":
            return "kv"
        if (
            any(words in note for words in ("sliding pool only", "sliding part: ", "sliding layers: "))
            or note == "sliding pool"
        ):
            return "swa"
        return "full" if note.startswith(("full p", "8 global layers")) else "kv"


def read_rows(folder: Path) -> list[Row]:
    """All rows of the reference data."""
    with (folder / "observations.yaml").open() as file:
        rows = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return [Row({**raw, **stated(raw["id"])}, find_model(raw["id"], raw["model"])) for raw in rows]
