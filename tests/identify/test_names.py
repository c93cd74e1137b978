"""Names as logs write them lead to the names of the catalogue."""

from __future__ import annotations

import pytest

from kvplan.identify.names import repository, spellings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("/path/to/Qwen3-235B-A22B-FP8", "Qwen3-235B-A22B-FP8"),
        ("/models/llama/", "llama"),
        ("/home/user/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c", "Qwen3-8B"),
        ("/m/Qwen3-8B-Q8_0.gguf", "Qwen3-8B-Q8_0"),
        ("/m/DeepSeek-R1-UD-Q2_K_XL-00001-of-00005.gguf", "DeepSeek-R1-UD-Q2_K_XL"),
        ("DeepSeek R1", "DeepSeek R1"),
    ],
)
def test_the_telling_part_of_a_name_or_path(text: str, expected: str) -> None:
    assert repository(text) == expected


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("Qwen2.5-32B-Instruct-FP8", "Qwen2.5-32B-Instruct"),
        ("Llama-3.3-70B-Instruct-FP8-dynamic", "Llama-3.3-70B-Instruct"),
        ("Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "Meta-Llama-3.1-8B-Instruct"),
        ("Qwen3.5-35B-A3B-GPTQ-Int4", "Qwen3.5-35B-A3B"),
        ("Kimi-Linear-48B-A3B-Instruct-AWQ-4bit", "Kimi-Linear-48B-A3B-Instruct"),
        ("Qwen3.6-27B-NVFP4", "Qwen3.6-27B"),
        ("Qwen2.5-0.5B-bnb-4bit", "Qwen2.5-0.5B"),
        ("qwen2-7b-instruct-q4_k_m", "qwen2-7b-instruct"),
        ("DeepSeek-R1-UD-Q2_K_XL", "DeepSeek-R1"),
    ],
)
def test_a_quantized_copy_is_looked_up_as_what_it_is_a_copy_of_too(name: str, bare: str) -> None:
    assert list(spellings(f"org/{name}")) == [name, bare]


@pytest.mark.parametrize("name", ["Qwen3-8B", "gpt-oss-20b", "Kimi-K2.5", "Qwen3-4B-Instruct-2507", "FP8"])
def test_names_that_say_nothing_of_precision_stay(name: str) -> None:
    assert list(spellings(name)) == [name]
