"""Rotary scaling under the names of every transformers generation."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.hf import spec_from_config
from kvplan.model import RopeScaling
from tests.hf.seeds import SEEDS

YARN = {"factor": 4.0, "original_max_position_embeddings": 1024, "mscale": 1.0, "mscale_all_dim": 0.0}


def scaling(**more: Any) -> RopeScaling | None:
    return spec_from_config({**SEEDS["gqa"].config, **more}, name="seed", source="config.json").rope_scaling


@pytest.mark.parametrize(
    "more",
    [
        {"rope_scaling": {"type": "yarn", **YARN}},
        {"rope_scaling": {"rope_type": "yarn", **YARN}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, **YARN}},
        {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default"},
                "full_attention": {"rope_type": "yarn", **YARN},
            }
        },
    ],
)
def test_yarn_is_the_same_in_every_spelling(more: dict[str, Any]) -> None:
    assert scaling(**more) == RopeScaling(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=1024, mscale=1.0, mscale_all_dim=0.0
    )


def test_longrope_stretches_to_the_maximum_context() -> None:
    found = scaling(rope_scaling={"type": "longrope", "long_factor": [1.0, 2.0]}, original_max_position_embeddings=1024)
    assert found == RopeScaling(rope_type="longrope", factor=4.0, original_max_position_embeddings=1024)


@pytest.mark.parametrize("kind", ["llama3", "dynamic", "linear"])
def test_other_kinds_keep_their_factor(kind: str) -> None:
    assert scaling(rope_scaling={"rope_type": kind, "factor": 8.0}) == RopeScaling(rope_type=kind, factor=8.0)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"rope_scaling": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    ],
)
def test_plain_positions_are_not_scaled(more: dict[str, Any]) -> None:
    assert scaling(**more) is None
