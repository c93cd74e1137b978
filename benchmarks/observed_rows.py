"""A row of the observations as a question to kvplan: which engine, release, model, GPU and flags it states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from observed_models import Model, Models

from kvplan.catalog import load_gpu
from kvplan.errors import KvplanError
from kvplan.gpu import GpuSpec
from kvplan.plan import Scenario

GIB = 2**30
ENGINES = {
    "vllm": "vllm", "vllm (fork)": "vllm", "vllm (seen through LMCache)": "vllm", "vllm-ascend": "vllm",
    "sglang": "sglang", "sglang (XPU)": "sglang", "sglang + ktransformers": "sglang", "llama.cpp": "llama.cpp",
    "llama.cpp (LM Studio 0.4.12, metal runtime 2.14.0)": "llama.cpp", "ik_llama.cpp": "llama.cpp",
    "tensorrt-llm": "tensorrt-llm", "tensorrt-llm (Dynamo docs)": "tensorrt-llm",
}  # fmt: skip
"""Engines whose rules kvplan has, under the names of the rows."""
V0_RELEASES = ("0.6", "0.7")
V1_RELEASES = tuple(f"0.{minor}" for minor in range(9, 34))
GPUS = {
    "79.22 GiB class (H100/A100 80GB)": "h100", "RTX 3090 (23.58 GiB)": "rtx-3090", "DGX Spark GB10 (2x)": "gb10",
    "RTX PRO 6000 Blackwell Max-Q": "rtx-pro-6000", "RTX PRO 6000 96GB (4x)": "rtx-pro-6000", "GH200 96GB": "gh200",
    "4x 96GB": "rtx-pro-6000", "RTX 3090 (16x)": "rtx-3090", "24 GB Ada (L4 class)": "l4", "Ascend 910B3": "ascend-910b3",
    "H100 NVL (Standard_NC80adis_H100_v5)": "h100-nvl", "RTX 4090 24GB": "rtx-4090", "V100 32GB": "v100-32gb",
    "Jetson AGX Thor 128GB": "jetson-agx-thor", "Ascend NPU 60.96 GiB": "ascend-910b3", "Ascend 910B": "ascend-910b3",
    "DGX Spark (GB10)": "gb10", "DGX Spark GB10": "gb10", "A100": "a100-80gb", "RTX 4060 8GB": "rtx-4090",
    "SM120 (RTX 5090 class / RTX PRO)": "rtx-5090", "SM120": "rtx-5090", "sm_120": "rtx-5090",
}  # fmt: skip
"""GPUs that the catalogue spells otherwise, and the nearest relative of one that it does not have (memory is stated)."""
STAND_IN = "h100"
"""For rows that name no GPU; it decides the block size and, where memory is stated, nothing of the pool."""
KV_DTYPES = {"bf16": "bf16", "auto (bf16)": "bf16", "fp8 (fp8_ds_mla)": "fp8_ds_mla", "f16": "fp16", "fp8_e4m3": "fp8"}
NVFP4_DS_MLA = "nvfp4_ds_mla"


@dataclass(frozen=True, slots=True)
class Row:
    """One observation: what was stated, and the model it means (None where it says too little)."""

    raw: Mapping[str, Any]
    model: Model | None

    def __getattr__(self, name: str) -> Any:
        return self.raw.get(name)

    @property
    def row_id(self) -> str:
        """Its id."""
        return str(self.raw["id"])

    @property
    def engine_name(self) -> str | None:
        """The engine as kvplan names it; None for engines whose rules it does not have."""
        return ENGINES.get(self.raw["engine"])

    @property
    def release(self) -> str | None:
        """The release, `0.19`, where the row states one."""
        text = str(self.raw["engine_version"] or "")
        if "V0" in text:
            return V0_RELEASES[-1]
        match = re.search(r"0\.(\d+)", text)
        return f"0.{match[1]}" if match and match[1] != "1" else None

    @property
    def inferred(self) -> tuple[str, ...]:
        """Fields that the collectors deduced."""
        return tuple(self.raw["inferred"] or ())

    @property
    def pool_bytes(self) -> int | None:
        """The printed pool of one GPU: the memory line, K and V, or the one KV size."""
        k, v = self.raw["k_size_gb"], self.raw["v_size_gb"]
        size = self.raw["available_kv_gib"] or (k + v if k and v else None) or self.raw["kv_size_gb"]
        return int(size * GIB) if size else None

    @property
    def pool_rounding_bytes(self) -> int:
        """Half of the last printed digit, for K and V twice."""
        size = self.raw["available_kv_gib"] or self.raw["k_size_gb"] or self.raw["kv_size_gb"] or 0.0
        digits = len(str(size).partition(".")[2])
        lines = 1 if self.raw["available_kv_gib"] or not self.raw["k_size_gb"] else 2
        return int(lines * GIB * 0.5 * 10.0 ** -max(digits, 2 if digits == 1 else digits))

    @property
    def gpu_spec(self) -> GpuSpec:
        """The GPU, with the memory that the row prints; a stand-in where it names none."""
        name = self.raw["gpu"] or STAND_IN
        try:
            gpu = load_gpu(GPUS.get(name, name))
        except KvplanError:
            gpu = load_gpu(STAND_IN)
        memory = self.raw["gpu_memory_gib"]
        exact = memory and round(memory, 2) != memory or memory and abs(gpu.memory_bytes / GIB - memory) > 0.005
        return replace(gpu, memory_bytes=int(memory * GIB)) if exact else gpu

    def releases(self) -> tuple[str, ...]:
        """The release stated, or all whose log has the lines that the row shows (the old engine counted CPU blocks)."""
        if self.engine_name != "vllm":
            return ("",)
        if self.release:
            return (self.release,)
        return V0_RELEASES if self.raw["num_cpu_blocks"] is not None else V1_RELEASES

    def scenarios(self) -> Iterator[Scenario]:
        """One question for each release that the row may be of."""
        for release in self.releases():
            yield self.scenario(release)

    def scenario(self, release: str) -> Scenario:
        """The question under one release."""
        raw = self.raw
        model = self.model
        if model is None or self.engine_name is None:
            raise LookupError(f"{self.row_id}: no model or engine")
        ranks = (raw["tp"] or 1) * (raw["dp"] or 1)
        tp, dp = raw["tp"] or 1, raw["dp"] or 1
        if raw["enable_dp_attention"] and tp >= dp:
            tp //= dp
        return Scenario(
            model=model.spec,
            gpu=self.gpu_spec,
            engine=self.engine_name + (f"@{release}" if release else ""),
            tp=1 if self.engine_name == "llama.cpp" else tp,
            pp=raw["pp"] or 1,
            dp=dp,
            dcp=raw["dcp"] or 1,
            ep=ranks if raw["ep"] else 1,
            context=self.context,
            kv_dtype=self.kv_dtype,
            gpu_memory_utilization=raw["gpu_memory_utilization"] or raw["mem_fraction_static"],
            max_num_seqs=raw["max_num_seqs"],
            max_num_batched_tokens=raw["max_num_batched_tokens"],
            block_size=self.stated_block_size,
            engine_args=self.engine_args(release),
        )

    @property
    def stated_block_size(self) -> int | None:
        """--block-size, where the log line is one that a flag sets."""
        if self.raw["engine"] == "vllm-ascend":
            return 128
        size = self.raw["block_size"]
        return size if size in (16, 32, 64, 128) else None

    @property
    def context(self) -> int | None:
        """The maximum length; the cells of llama.cpp's line."""
        if self.engine_name == "llama.cpp" and self.raw["cells"]:
            return self.raw["max_model_len"] or self.raw["cells"]
        return self.raw["max_model_len"]

    @property
    def kv_dtype(self) -> str:
        """The KV dtype under kvplan's names."""
        stated = self.raw["kv_cache_dtype"] or "auto"
        return KV_DTYPES.get(stated, stated)

    def engine_args(self, release: str) -> dict[str, Any]:
        """Flags beside those that have fields."""
        args: dict[str, Any] = {}
        if self.engine_name == "vllm":
            if self.raw["enforce_eager"]:
                args["enforce_eager"] = True
            if self.raw["quant"] in ("float16", "float32", "fp16"):
                args["dtype"] = "float32" if self.raw["quant"] == "float32" else "float16"
            if self.raw["quant"] == "fp8 / bfloat16" and self.model and self.model.spec.quantization is None:
                args["quantization"] = "fp8"
            if self.drafts and release not in V0_RELEASES:
                args["speculative_config"] = {"method": "mtp", "num_speculative_tokens": self.drafts}
        return args

    @property
    def drafts(self) -> int:
        """Tokens that multi-token prediction drafts; 1 where the row does not say."""
        text = self.raw["speculative"] or ""
        if "MTP" not in text:
            return 0
        match = re.search(r"(?:k=|, )(\d+)", text)
        return int(match[1]) if match else 1


def read_rows(folder: Path) -> list[Row]:
    """All rows of the reference data."""
    models = Models(folder)
    with (folder / "observations.yaml").open() as file:
        rows = yaml.load(file, Loader=yaml.CSafeLoader)
    return [Row(raw, models.find(raw["id"], raw["model"])) for raw in rows]
