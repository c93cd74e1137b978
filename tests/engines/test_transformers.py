"""transformers' caches, measured on 5.14.1 and 5.24.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.engines.transformers import ENGINE, GrowingCache
from kvplan.errors import Unsupported
from kvplan.model import ModelSpec
from tests.engines.toys import deployment, heads, latent, model


def cache(spec: ModelSpec, tokens: int = 4096, **options: Any) -> GrowingCache:
    found = ENGINE.layout(deployment(spec, tokens, **options))
    assert isinstance(found, GrowingCache)
    return found


@pytest.mark.parametrize(("version", "per_token"), [("5.24", 1152), ("5.15", 1152), ("5.14", 81920), ("4.57", 81920)])
def test_the_latent_is_stored_since_5_15(version: str, per_token: int) -> None:
    """DeepSeek-V3, one layer: 128 heads x (192 + 128) before."""
    assert cache(model(("0", latent())), version=version).bytes_per_block == per_token


@pytest.mark.parametrize(("version", "per_token"), [("5.24", 1152 + 256), ("5.17", 81920 + 256)])
def test_sparse_latents_since_5_18(version: str, per_token: int) -> None:
    """DeepSeek-V3.2: index keys in the model's dtype."""
    assert cache(model(("0", latent(index=True))), version=version).bytes_per_block == per_token


def test_a_window_keeps_one_token_less_and_pins_its_prompt() -> None:
    """W - 1 rows shown; the whole prompt behind them until the next step, W rows after it (5.24.0)."""
    found = cache(model(("0-2", heads(4, 2, 16, window=32))))

    assert found.session_bytes(200) == 11904
    assert found.storage_bytes(200) == 76800
    assert found.storage_bytes(200, decoded=1) == 12288


def test_quantized_dtypes_are_refused() -> None:
    """The cache has the model's dtype."""
    with pytest.raises(Unsupported, match="not fp8"):
        cache(model(("0", heads(4, 4, 16))), kv_dtype="fp8")


@pytest.mark.groundtruth
def test_every_row_of_the_reference(groundtruth: Path) -> None:
    """Shown bytes equal the measured ones."""
    from kvplan.hf import spec_from_config

    checked = 0
    for row in json.loads((groundtruth / "golden_engines.json").read_text()):
        if row["engine"] != "transformers":
            continue
        params = row["params"]
        static = params["cache"].startswith("StaticCache")
        longest = int(params["cache"].partition("=")[2].rstrip(")")) if static else 4096
        config = {"vocab_size": 128, "intermediate_size": 64, "max_position_embeddings": 4096, **row["model_config"]}
        found = cache(
            spec_from_config(config, name=row["case"], source="reference"),
            longest,
            version=row["version"],
            kv_dtype={"bfloat16": "bf16", "float32": "fp32"}[params["dtype"]],
            engine_args={"cache_implementation": "static"} if static else {},
        )
        for text, measured in row["bytes"].items():
            tokens = int(text.partition("=")[2]) + params["decode_steps_after"]
            assert found.session_bytes(tokens) * params["batch"] == measured, (row["case"], row["version"], text)
            checked += 1
    assert checked >= 70
