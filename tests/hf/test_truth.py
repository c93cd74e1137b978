"""The importer against the ground truth of the reference data, file by file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.accuracy_hf import comparisons, section
from kvplan.hf import import_config, spec_from_config
from kvplan.model import cost_line
from kvplan.parallel import Parallelism
from kvplan.storage import kv_format

pytestmark = pytest.mark.groundtruth


def test_every_original_copied_and_reconstructed_file_is_read_as_the_truth_says(groundtruth: Path) -> None:
    wrong = [
        (c.file, c.refusal or c.found, c.expected) for c in comparisons(groundtruth) if c.tier != "X" and not c.agrees
    ]
    assert wrong == []


def test_an_altered_file_is_never_read_otherwise_in_silence(groundtruth: Path) -> None:
    altered = [c for c in comparisons(groundtruth) if c.tier == "X"]
    assert altered
    assert [c.file for c in altered if not c.agrees and not c.refusal and not c.notes] == []


@pytest.mark.parametrize(
    ("file", "kv_dtype", "bytes_per_token", "fixed_bytes"),
    [
        ("hf_configs/deepseek-ai__DeepSeek-R1.json", "bf16", 70_272, 0),
        ("hf_configs/deepseek-ai__DeepSeek-V3.2.json", "bf16", 78_324, 0),
        ("hf_configs/deepseek-ai__DeepSeek-V3.2.json", "fp8_ds_mla", 48_068, 0),
        ("vllm_cases/llama31-70b.json", "bf16", 327_680, 0),
        ("hf_configs/reconstructed/tiiuae__falcon-7b.json", "bf16", 8_192, 0),
        ("hf_configs/openai__gpt-oss-120b.json", "bf16", 36_864, 4_718_592),
        ("hf_configs/Qwen__Qwen3-Next-80B-A3B-Instruct.json", "bf16", 24_576, 77_266_944),
        ("hf_configs/nvidia__Nemotron-H-56B-Base-8K.json", "bf16", 40_960, 912_605_184),
        ("hf_configs/reconstructed/moonshotai__Kimi-Linear-48B-A3B-Instruct.json", "bf16", 8_064, 43_417_600),
        ("hf_configs/google__gemma-3-27b-it.json", "bf16", 81_920, 436_207_616),
    ],
)
def test_the_published_line_of_a_model(
    groundtruth: Path, file: str, kv_dtype: str, bytes_per_token: int, fixed_bytes: int
) -> None:
    line = cost_line(import_config(groundtruth / file), 131_072, kv_format(kv_dtype), Parallelism())
    assert (line.bytes_per_token, line.fixed_bytes) == (bytes_per_token, fixed_bytes)


def test_every_config_that_engines_were_run_on_is_read(groundtruth: Path) -> None:
    files = sorted((groundtruth / "vllm_cases").glob("*.json"))
    assert files
    assert all(import_config(file).num_hidden_layers for file in files)


def test_every_transformers_config_of_the_engine_runs_is_read(groundtruth: Path) -> None:
    runs = json.loads((groundtruth / "golden_engines.json").read_text())
    configs = [c for run in runs if (c := run.get("model_config")) and c.get("model_type")]
    assert configs
    for config in configs:
        spec = spec_from_config(config, name="run", source="golden_engines.json")
        assert spec.num_hidden_layers == config["num_hidden_layers"]


def test_the_accuracy_section_counts_every_file(groundtruth: Path) -> None:
    text = section(groundtruth)
    assert "| A | 110 | 110 |" in text
    assert "| C | 25 | 25 |" in text
