"""Sweep files: lists and grids, errors by scenario, and what a file may not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import BadInput, KvplanError, UnknownName
from kvplan.sweep import read_scenarios, run


def sweep_file(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


DEFAULTS = "defaults: {model: llama-3.1-8b, gpu: h100, context: 4k, kv_pool_bytes: 8GiB}\n"


def test_a_grid_is_every_combination_the_last_key_fastest(tmp_path: Path) -> None:
    """2 x 2, with the defaults in each."""
    rows = read_scenarios(sweep_file(tmp_path, DEFAULTS + "grid: {tp: [1, 2], context: [4k, 8k]}\n"))

    assert [(r["id"], r["tp"], r["context"], r["gpu"]) for r in rows] == [
        ("0", 1, "4k", "h100"), ("1", 1, "8k", "h100"), ("2", 2, "4k", "h100"), ("3", 2, "8k", "h100"),
    ]  # fmt: skip


def test_a_scenario_that_fails_carries_its_error_and_the_rest_run(tmp_path: Path) -> None:
    """One line each; the others are plans."""
    text = (
        DEFAULTS
        + "scenarios:\n- {id: good}\n- {id: odd, tp: 3}\n- {id: typo, model: lama-3.1-8b}\n- {id: fine, tp: 2}\n"
    )
    results = list(run(read_scenarios(sweep_file(tmp_path, text))))

    assert [(r.id, r.plan is not None) for r in results] == [
        ("good", True),
        ("odd", False),
        ("typo", False),
        ("fine", True),
    ]
    assert all("\n" not in (r.error or "") for r in results)
    assert "llama-3.1-8b" in (results[2].error or "")


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", BadInput, "mapping"),
        ("- 1\n", BadInput, "mapping"),
        (DEFAULTS, BadInput, "no scenarios"),
        (DEFAULTS + "scenario: []\n", UnknownName, "scenarios"),
        (DEFAULTS + "grid: {contxt: [4k]}\n", UnknownName, "context"),
        (DEFAULTS + "scenarios: {tp: 1}\n", BadInput, "not a list"),
        (DEFAULTS + "scenarios: [7]\n", BadInput, "mapping"),
        ("grid: {tp: [" + "1," * 1100 + "1], pp: [" + "1," * 1100 + "1]}\n", BadInput, "at most"),
        ("a: &x 1\nb: *x\n", BadInput, "anchor"),
        ("\x00", BadInput, "YAML"),
    ],
)
def test_what_a_file_may_not_be(tmp_path: Path, text: str, error: type[KvplanError], says: str) -> None:
    """One line with the file's name."""
    with pytest.raises(error, match=says) as found:
        read_scenarios(sweep_file(tmp_path, text))

    assert "sweep.yaml" in str(found.value)


@pytest.mark.parametrize(
    "row",
    [
        "{tp: -1}", "{tp: 1.5}", "{tp: true}", "{tp: one}", "{context: -4}", "{context: 4x}",
        "{gpu_memory_utilization: 2}",
        "{kv_pool_bytes: 80}", "{kv_pool_bytes: '80'}", "{engine: 7}", "{kv_dtype: [1]}", "{model: 7}",
        "{max_num_seqs: 0}",
        "{engine_args: [1]}", "{engine_args: {no_such_flag: 1}}", "{given_bytes: 7}", "{given_bytes: {wieghts: 1}}",
    ],
)  # fmt: skip
def test_bad_values_are_one_line_for_their_scenario(tmp_path: Path, row: str) -> None:
    """Never a traceback, never a plan."""
    (result,) = run(read_scenarios(sweep_file(tmp_path, DEFAULTS + f"scenarios: [{row}]\n")))

    assert result.plan is None or row == "{kv_pool_bytes: 80}"
    assert result.error is None or "\n" not in result.error


@pytest.mark.parametrize(
    ("engine", "flag", "value"),
    [
        ("llama.cpp", "n_ctx", "many"), ("llama.cpp", "swa_full", 1), ("llama.cpp", "type_k", "q9"),
        ("sglang", "swa_full_tokens_ratio", "abc"), ("sglang", "page_size", 0), ("sglang", "disable_radix_cache", "no"),
        ("sglang", "mamba_full_memory_ratio", -1), ("tensorrt-llm", "tokens_per_block", 1.5), ("vllm", "block_size", []),
        ("transformers", "cache_implementation", "quantized"), ("vllm", "num_gpu_blocks_override", "x"),
    ],
)  # fmt: skip
def test_bad_engine_flags_are_one_line(engine: str, flag: str, value: object) -> None:
    """Whatever the engine, a flag's value is checked before it is used."""
    row = {
        "id": "0", "model": "llama-3.1-8b", "gpu": "h100", "context": "4k", "engine": engine, "kv_pool_bytes": "8GiB",
        "engine_args": {flag: value},
    }  # fmt: skip
    (result,) = run([row])

    assert result.plan is None
    assert flag in (result.error or "") or "q9" in (result.error or "")
