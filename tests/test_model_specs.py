"""The bundled models: complete, sourced, and equal to what the importer reads from their configs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.make_specs import specs
from kvplan.attention import Attention
from kvplan.catalog import load_model, model_names
from kvplan.model import ModelSpec, cost_line
from kvplan.parallel import Parallelism
from kvplan.storage import kv_format

NAMES = list(model_names())

LAYER_TYPES = {
    "full_attention", "sliding_attention", "chunked_attention", "gqa_block_sparse", "mla", "mla_dsa",
    "mla_dsa_shared_index", "sliding_shared_kv", "csa", "hca", "mamba1", "mamba2", "gated_deltanet", "kda",
    "lightning_linear", "short_conv", "rwkv", "cross_attention", "none(kv shared)", "none(mlp)", "none(moe)",
    "none(no_op attention)",
}  # fmt: skip


@pytest.fixture(scope="module")
def bundled() -> list[ModelSpec]:
    return [load_model(name) for name in NAMES]


def test_there_are_many() -> None:
    assert len(NAMES) >= 80


def test_each_bears_its_files_name_and_says_where_it_comes_from(bundled: list[ModelSpec]) -> None:
    assert [spec.name for spec in bundled] == NAMES
    assert [s.name for s in bundled if not s.source.startswith(("https://", "the documents'"))] == []


def test_no_repository_stands_for_two_models(bundled: list[ModelSpec]) -> None:
    ids = Counter(i.lower() for spec in bundled for i in spec.hub_ids)
    assert [i for i, count in ids.items() if count > 1] == []


def test_every_repository_resolves_to_its_model(bundled: list[ModelSpec]) -> None:
    assert all(load_model(hub_id).name == spec.name for spec in bundled for hub_id in spec.hub_ids)


def test_every_attention_kind_has_a_model(bundled: list[ModelSpec]) -> None:
    assert {type(a) for spec in bundled for _, a in spec.mixers()} == set(get_args(Attention))


def test_every_layer_type_has_a_model(bundled: list[ModelSpec]) -> None:
    assert {kind for spec in bundled for kind in spec.layers_by_kind()} == LAYER_TYPES


@pytest.mark.parametrize(
    ("name", "kv_dtype", "bytes_per_token", "fixed_bytes"),
    [
        ("reference-mla", "fp16", 30 * 1152, 0),
        ("deepseek-67b", "bf16", 95 * 4096, 0),
        ("deepseek-v2", "bf16", 60 * 1152, 0),
        ("deepseek-v3", "bf16", 70_272, 0),
        ("deepseek-r1", "bf16", 70_272, 0),
        ("kimi-k2", "bf16", 70_272, 0),
        ("deepseek-v3.2", "bf16", 78_324, 0),
        ("deepseek-v3.2", "fp8_ds_mla", 48_068, 0),
        ("llama-3.1-8b", "bf16", 131_072, 0),
        ("llama-3.1-70b", "bf16", 327_680, 0),
        ("llama-3.1-405b", "bf16", 516_096, 0),
        ("falcon-7b", "bf16", 8_192, 0),
        ("gpt-oss-120b", "bf16", 36_864, 4_718_592),
        ("qwen3-next-80b-a3b", "bf16", 24_576, 77_266_944),
        ("nemotron-h-56b", "bf16", 40_960, 912_605_184),
        ("kimi-linear-48b-a3b", "bf16", 8_064, 43_417_600),
        ("gemma-3-27b", "bf16", 81_920, 436_207_616),
        ("mistral-7b", "bf16", 0, 536_870_912),
        ("minimax-m1", "bf16", 40_960, 293_601_280),
    ],
)
def test_the_line_of_a_model_is_the_published_one(
    name: str, kv_dtype: str, bytes_per_token: int, fixed_bytes: int
) -> None:
    line = cost_line(load_model(name), 131_072, kv_format(kv_dtype), Parallelism())
    assert (line.bytes_per_token, line.fixed_bytes) == (Fraction(bytes_per_token), fixed_bytes)


@pytest.mark.groundtruth
def test_every_file_is_what_the_importer_reads_today(groundtruth: Path) -> None:
    read = {spec.name: spec for spec in specs(groundtruth)}
    assert sorted(read) == NAMES
    assert [name for name in NAMES if load_model(name) != read[name]] == []
