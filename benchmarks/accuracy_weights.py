"""Parameters and weight bytes against what is known of them: `python benchmarks/accuracy_weights.py FOLDER`.

Two sections of docs/accuracy.md: the parameter total of every config of the reference data, and the weights that vLLM
printed as loaded on a rank, for the rows whose checkpoint and ranks are stated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from kvplan.catalog import load_model
from kvplan.hf import import_config
from kvplan.model import ModelSpec, Quantization
from kvplan.parallel import Parallelism
from kvplan.units import GIB
from kvplan.weights import params_total, rank_bytes

TOTAL_CAUSES: Mapping[str, str] = {
    "deepseek-ai__DeepSeek-V2-Lite.json": "the file's null q_lora_rank was dropped: the total has 27 q_a_proj too many",
    "Qwen__Qwen3-ASR.json": "the total is of the class's default config: the class reads no thinker_config",
    "reconstructed/google__flan-t5-xxl.json": "the file unties its head, as T5 1.1 does; the class ties any T5",
    "altered/stepfun-ai__Step-3.7-Flash.json": "the total has an image encoder that the file lost",
    "openbmb__MiniCPM-2B-sft-bf16-llama-like.json": "published of the original, which ties its head",
    "reconstructed/google__gemma-3n-E2B-it.json": "published with the encoders, of which the file says nothing",
    "reconstructed/meituan-longcat__LongCat-Flash-Chat.json": "published with the prediction module and its embedding",
}
"""Why a total differs, where it does by more than its own precision."""

_ALL = ("attention", "mixer", "shared_experts")
_FORMATS: Mapping[str, Quantization | None] = {
    "": None,
    "fp8": Quantization(quant_method="fp8", weight_format="fp8"),
    "fp8 MLPs": Quantization(quant_method="fbgemm_fp8", weight_format="fp8", unquantized=("attention",)),
    "fp8 channels": Quantization(quant_method="compressed-tensors", weight_format="fp8_channel"),
    "fp8 blocks": Quantization(quant_method="fp8", weight_format="fp8_block"),
    "int8 channels": Quantization(quant_method="compressed-tensors", weight_format="int8_channel"),
    "int4": Quantization(quant_method="gptq", weight_format="int4"),
    "int4 experts": Quantization(quant_method="gptq", weight_format="int4", unquantized=_ALL),
    "mxfp4 experts": Quantization(quant_method="mxfp4", weight_format="mxfp4", unquantized=("attention",)),
}
_MODELS: tuple[tuple[str, str, str], ...] = (
    ("llama-3.1-8b", "", "meta-llama/Llama-3.1-8B-Instruct"),
    ("llama-3.1-8b", "int4", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"),
    ("llama-3.1-8b", "int8 channels", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8"),
    ("llama-3-8b", "", "meta-llama/Meta-Llama-3-8B"),
    ("llama-3.3-70b", "int8 channels", "redhatai/Llama-3.3-70B-Instruct-quantized.w8a8"),
    ("llama-3.3-70b", "int8 channels", "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8"),
    ("llama-3.1-405b", "fp8 MLPs", "Meta-Llama-3.1-405B-Instruct-FP8"),
    ("llama-4-scout", "", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
    ("mixtral-8x7b", "", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    ("phi-4", "", "microsoft/phi-4"),
    ("granite-3.1-8b", "", "ibm-granite/granite-3.1-8b-instruct"),
    ("granite-3.1-8b", "", "ibm-granite/granite-3.3-8b-instruct"),
    ("gemma-3-4b", "", "google/gemma-3-4b-it"),
    ("gemma-3-12b", "", "google/gemma-3-12b-it"),
    ("gemma-3-27b", "", "google/gemma-3-27b-it"),
    ("gemma-4-26b-a4b", "", "google/gemma-4-26B-A4B-it"),
    ("gpt-oss-20b", "mxfp4 experts", "openai/gpt-oss-20b"),
    ("qwen2.5-14b", "", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"),
    ("qwen2.5-32b", "", "Qwen2.5-32B-Instruct"),
    ("qwen2.5-72b", "", "Qwen/Qwen2.5-72B-Instruct"),
    ("qwen2.5-7b", "fp8 channels", "RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic"),
    ("qwen3-8b", "", "Qwen/Qwen3-8B"),
    ("qwen3-30b-a3b", "", "Qwen/Qwen3-30B-A3B"),
    ("qwen3-235b-a22b-2507", "fp8 blocks", "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"),
    ("qwen3.5-35b-a3b", "int4 experts", "Qwen/Qwen3.5-35B-A3B-GPTQ-Int4"),
    ("qwen3.8-27b", "fp8 blocks", "Qwen3.8-27B (fp8)"),
    ("deepseek-v2-lite", "", "deepseek-ai/DeepSeek-V2-Lite-Chat"),
    ("deepseek-v4-flash", "own", "DeepSeek-V4-Flash"),
    ("glm-5.1", "fp8 blocks", "zai-org/GLM-5.1-FP8"),
    ("glm-5.3", "fp8 blocks", "zai-org/GLM-5.3"),
    ("minimax-m2.5", "fp8 blocks", "MiniMax-M2.5"),
)
"""Bundled spec, format of the copy, and the words of a row's `model`."""
RANK_CAUSES: Mapping[str, str] = {
    "vllm-6746-a": "the checkpoint's first and last layers are unquantized too; V0 printed a peak, not what stays",
    "vllm-13061-a": "V0 printed the peak of loading, not what stays",
    "recipes-893-a": "0.28 prints 5 GiB more for GLM-5.3 than 0.19 did for GLM-5.1, which has the same geometry",
}
"""Why a row is missed by more than 1 %."""


@dataclass(frozen=True, slots=True)
class Total:
    """Parameters of one file: counted and known, and how far apart they may be by the precision of what is known."""

    file: str
    counted: int
    known: int
    slack: int

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the precision."""
        return abs(self.counted - self.known) <= self.slack


@dataclass(frozen=True, slots=True)
class Loaded:
    """One start-up: GiB of weights on a rank as vLLM printed them, and as they are computed."""

    row_id: str
    model: str
    parallel: Parallelism
    observed_gib: float
    computed_gib: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.computed_gib / self.observed_gib - 1


def totals(folder: Path) -> Iterator[Total]:
    """Every file of hf_configs/TRUTH.yaml that states a total."""
    configs = folder / "hf_configs"
    for entry in _yaml(configs / "TRUTH.yaml"):
        known = entry["params_total"]["value"]
        if known is not None:
            counted = params_total(import_config(configs / entry["file"]))
            yield Total(entry["file"], counted, round(known), _slack(round(known), entry["params_total"]["how"]))


def _slack(known: int, how: str) -> int:
    """Nothing for a count; for a rounded figure half a unit of its last digit (of its third, if that is a zero)."""
    if "meta-device" in how or "class" in how:
        return 0
    if "+-2%" in how:
        return known // 50
    digits = str(known)
    step: int = 10 ** (len(digits) - max(3, len(digits.rstrip("0"))))
    return max(step // 2, int(10 ** (len(digits) - 4)))


def starts(folder: Path) -> Iterator[Loaded]:
    """Every vLLM row of observations.yaml that states weights, ranks and a checkpoint that is known."""
    copies = {words: (name, form) for name, form, words in _MODELS}
    for row in _yaml(folder / "observations.yaml"):
        clear = row["weights_gib"] and row["tp"] and row["engine"] == "vllm" and "model" not in row["inferred"]
        if clear and row["model"] in copies:
            parallel = Parallelism(tp=row["tp"], pp=row["pp"] or 1, ep=row["tp"] if row["ep"] else 1)
            size = rank_bytes(_copy(*copies[row["model"]], row["quant"] or ""), parallel)
            yield Loaded(row["id"], row["model"], parallel, row["weights_gib"], size / GIB)


def _copy(name: str, form: str, stated: str) -> ModelSpec:
    """The bundled spec in the copy's format; a row may ask for FP8 or fp32 at start-up."""
    spec = load_model(name)
    if stated.startswith("fp8 / "):
        form = "fp8"
    if stated == "float32":
        spec = replace(spec, torch_dtype="float32")
    return spec if form == "own" else replace(spec, quantization=_FORMATS[form])


def _yaml(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return rows


def section(folder: Path) -> str:
    """Markdown of both comparisons."""
    return "\n".join([*_totals_section(list(totals(folder))), *_starts_section(list(starts(folder)))])


def _totals_section(rows: list[Total]) -> Iterator[str]:
    yield "## Parameters\n"
    equal = sum(r.counted == r.known for r in rows)
    yield f"{len(rows)} files state a total: {equal} are equal, {sum(r.agrees for r in rows)} within its precision.\n"
    yield "| config | counted | known | difference | |"
    yield "|---|---:|---:|---:|---|"
    for r in rows:
        verdict = "equal" if r.counted == r.known else "rounded" if r.agrees else TOTAL_CAUSES.get(r.file, "")
        yield f"| `{r.file}` | {r.counted:,} | {r.known:,} | {r.counted - r.known:,} | {verdict} |"
    yield ""


def _starts_section(rows: list[Loaded]) -> Iterator[str]:
    errors = [abs(r.error) for r in rows]
    near = sum(e <= 0.01 for e in errors)
    yield "## Weights on a rank\n"
    yield f"{len(rows)} starts of vLLM: median error {100 * median(errors):.2f} %, {near} within 1 %.\n"
    yield "| row | checkpoint | tp | pp | ep | printed GiB | computed GiB | error | |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---|"
    for r in rows:
        ranks = f"{r.parallel.tp} | {r.parallel.pp} | {r.parallel.ep}"
        figures = f"{r.observed_gib:.2f} | {r.computed_gib:.2f} | {100 * r.error:+.2f} %"
        yield f"| {r.row_id} | {r.model} | {ranks} | {figures} | {RANK_CAUSES.get(r.row_id, '')} |"
    yield ""


if __name__ == "__main__":
    print(section(Path(sys.argv[1])))
