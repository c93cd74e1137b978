"""Groups: which layers share a block table, and the bytes of one block."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.vllm.groups import least_padding
from kvplan.engines.vllm.layout import VllmLayout
from kvplan.errors import Unsupported
from kvplan.model import ModelSpec
from tests.engines.toys import heads, latent, model
from tests.engines.vllm_models import (
    GEMMA_27B,
    GIB,
    GPT_OSS_20B,
    LLAMA_8B,
    QWEN_NEXT,
    V3_MTP,
    V4_FLASH,
    V4_FLASH_MTP,
    V32,
    V32_MTP,
    interleaved,
    layout,
)  # fmt: skip

MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}
EAGLE = {"speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}}
WINDOWS = heads(16, 4, 64, window=256)
FULL = heads(16, 4, 64)


def sizes(found: VllmLayout) -> list[int]:
    return [g.layers for g in found.groups()]


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        (LLAMA_8B, {}, [32]),
        (V32, {}, [122]),  # records and indexer keys need the same slots
        (GEMMA_27B, {}, [9, 9, 9, 9, 8, 8, 10]),
        (GPT_OSS_20B, {}, [12, 12]),
        (GPT_OSS_20B, {"engine_args": EAGLE}, [12, 13]),
        (GEMMA_27B, {"engine_args": {"disable_hybrid_kv_cache_manager": True}}, [62]),
        (V4_FLASH, {}, [22, 21, 62, 42, 20]),
        (V4_FLASH_MTP, {"engine_args": MTP}, [22, 22, 62, 42, 20]),
        (interleaved(18, 2, FULL, WINDOWS), {}, [9, 9]),
        (model(("0-7", FULL), ("8-16", WINDOWS)), {}, [8, 9]),  # 9 is below 1.5 times 8: one group of each
        (model(("0-7", FULL), ("8-19", WINDOWS)), {}, [8, 6, 6]),
        (model(("0-9", WINDOWS)), {}, [10]),
    ],
)
def test_layers_of_each_group(spec: ModelSpec, options: dict[str, Any], expected: list[int]) -> None:
    """As vLLM 0.33 forms them."""
    assert sorted(sizes(layout(spec, **options))) == sorted(expected)


@pytest.mark.parametrize(("version", "expected"), [("0.16.0", [8, 5, 5]), ("0.18.1", [8, 10])])
def test_few_more_layers_are_padded_up(version: str, expected: list[int]) -> None:
    """The bound between padding and splitting went from 1.25 to 1.5 in 0.18."""
    spec = model(("0-7", FULL), ("8-17", WINDOWS))

    assert sorted(sizes(layout(spec, version=version))) == sorted(expected)


@pytest.mark.parametrize(
    ("spec", "options", "size"),
    [
        (GEMMA_27B, {}, 10 * 131072),
        (V4_FLASH, {}, 1002240),
        (V4_FLASH, {"tp": 8}, 1002240),
        (V3_MTP, {"engine_args": MTP}, 62 * 18432),
        (V32_MTP, {"engine_args": MTP}, 62 * 64 * (1152 + 132)),
        (LLAMA_8B, {"engine_args": EAGLE}, 33 * 65536),
        (LLAMA_8B, {"engine_args": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}}}, 2097152),
    ],
)
def test_bytes_of_a_block(spec: ModelSpec, options: dict[str, Any], size: int) -> None:
    """The fullest group's pages; a drafter's layers join, an n-gram's do not exist."""
    assert layout(spec, **options).bytes_per_block == size


def test_every_stage_chooses_its_own_block() -> None:
    """TurboQuant with three stages: the middle one has no unquantized layer, and blocks of 48 (vLLM 0.32)."""
    found = layout(LLAMA_8B, tp=2, pp=3, kv_dtype="turboquant_k8v4", version="0.32.0")

    assert set(found.block_sizes) == {32, 48}
    assert found.geometry.stage_bytes == (196608, 196608, 196608)


def test_qwen3_next_drafts_with_a_layer_that_its_config_does_not_state() -> None:
    """One more layer of full attention, and states for the drafted tokens."""
    found = layout(replace(QWEN_NEXT, model_type="qwen3_next"), tp=2, engine_args=MTP)

    assert sorted(sizes(found)) == [12, 12, 12, 13]
    assert {len(g.layers) for g in found.geometry.groups if g.pages.states == 6} == {12}


def test_the_drafter_is_an_assumption_that_is_said() -> None:
    """Nobody states the layers of an EAGLE head."""
    assert layout(LLAMA_8B, engine_args=EAGLE).notes == (
        "eagle3: the drafter is taken for one layer with the target's full attention",
    )


def test_a_draft_model_brings_its_own_layers() -> None:
    """Two layers of another shape: one group, two sizes of page."""
    draft = model(("0-1", heads(16, 4, 128)))
    args = {"speculative_config": {"method": "draft_model", "num_speculative_tokens": 2, "model": draft}}
    found = layout(LLAMA_8B, engine_args=args)

    assert sizes(found) == [34]
    assert found.bytes_per_block == 32 * 65536 + 2 * 32768


def test_unknown_drafters_are_refused() -> None:
    """What a draft model of no known shape adds cannot be guessed."""
    args = {"speculative_config": {"method": "draft_model", "num_speculative_tokens": 2, "model": "a/name"}}

    with pytest.raises(Unsupported, match="the layers that 'draft_model' drafts with are unknown"):
        layout(LLAMA_8B, engine_args=args)


@pytest.mark.parametrize(("pp", "stages"), [(2, (655360, 655360)), (3, (27 * 16384, 27 * 16384, 26 * 16384))])
def test_every_stage_has_its_own_bytes(pp: int, stages: tuple[int, ...]) -> None:
    """Llama-3.1-70B on 4 ranks: 80 layers over the stages as vLLM deals them."""
    found = layout(model(("0-79", heads(64, 8, 128))), tp=4, pp=pp)

    assert found.geometry.stage_bytes == stages
    assert found.capacity_of_stages([GIB] * pp).num_blocks == GIB // max(stages)


def test_the_tightest_stage_binds() -> None:
    """Pools of 40 and 35 GiB (vLLM 0.33)."""
    found = layout(model(("0-79", heads(64, 8, 128))), tp=4, pp=2)

    assert found.capacity_of_stages([40 * GIB, 35 * GIB]).num_blocks == 57344


def test_latents_beside_windows_hold_every_token() -> None:
    """Pages of a latent cannot be padded: since 0.24 windows beside it become full, before it was refused."""
    spec = model(("0-3", latent(16)), ("4-7", heads(16, 8, 64, window=256)))

    assert {g.growth for g in layout(spec).groups()} == {"full"}
    with pytest.raises(Unsupported, match="cannot be padded"):
        layout(spec, version="0.23.0")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 40))
def test_the_chunk_of_least_padding(values: list[int], least: int) -> None:
    """No other chunk pads less, and none larger pads as little."""
    chunk = least_padding(values, least)
    padding = {size: sum(-v % size for v in values) for size in range(least, max(least, *values) + 1)}

    assert padding[chunk] == min(padding.values()) or chunk == least
    assert not [size for size, pad in padding.items() if size > chunk and pad <= padding[chunk] and size <= max(values)]


def test_groups_cover_every_cache_once() -> None:
    """No layer is lost or kept twice."""
    for spec in (GEMMA_27B, V32, V4_FLASH):
        names = Counter(layer.name for g in layout(spec, pp=2).geometry.groups for layer in g.layers)
        assert set(names.values()) == {1}
