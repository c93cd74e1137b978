"""SGLang's pools: cell sizes, pages, the sliding share, state slots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.attention.linear import GatedDeltaNet
from kvplan.engines._tokens import TokenPool
from kvplan.engines.sglang import ENGINE
from kvplan.errors import Unsupported
from kvplan.model import ModelSpec
from tests.engines.toys import H100, deployment, heads, latent, model

GIB = 2**30
LLAMA_8B = model(("0-31", heads(32, 8, 128)))
V3, V32 = model(("0-60", latent())), model(("0-60", latent(index=True)))
GPT_OSS = model(("0-23/2", heads(64, 8, 64, window=128)), ("1-23/2", heads(64, 8, 64)))
GDN = GatedDeltaNet(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)


def pool(spec: ModelSpec, **options: Any) -> TokenPool:
    found = ENGINE.layout(deployment(spec, **options))
    assert isinstance(found, TokenPool)
    return found


@pytest.mark.parametrize(
    ("spec", "options", "cell"),
    [
        (LLAMA_8B, {}, 131072),
        (LLAMA_8B, {"tp": 4}, 32768),
        (LLAMA_8B, {"tp": 16}, 16384),
        (LLAMA_8B, {"pp": 2}, 65536),
        (LLAMA_8B, {"kv_dtype": "mxfp8"}, 67584),
        (LLAMA_8B, {"kv_dtype": "nvfp4"}, 36864),
        (V3, {}, 70272),
        (V3, {"tp": 8}, 70272),
        (V3, {"kv_dtype": "fp8"}, 35136),
        (V3, {"kv_dtype": "nvfp4"}, 19764),
        (V32, {}, 78324),
        (V32, {"kv_dtype": "fp8"}, 48068),
        (V32, {"kv_dtype": "fp8", "engine_args": {"dsa_decode_backend": "trtllm"}}, 43188),
        (model(("0-1", heads(16, 8, 192, 128))), {}, 2 * 8 * (192 + 128) * 2),
    ],
)
def test_cell_bytes(spec: ModelSpec, options: dict[str, Any], cell: int) -> None:
    """Bytes of one token on one rank (sglang 0.5.23, its own configurator)."""
    assert pool(spec, **options).cell_bytes == cell


@pytest.mark.parametrize(("tp", "full", "sliding"), [(1, 242688, 194112), (2, 485440, 388352)])
def test_gpt_oss_has_two_pools(tp: int, full: int, sliding: int) -> None:
    """10 GiB, pages of 64: the sliding pool has 0.8 of the full one's tokens (sglang 0.5.23)."""
    found = pool(GPT_OSS, tp=tp, engine_args={"page_size": 64})

    assert found.kv_tokens(10 * GIB) == full
    assert found.window_slots(10 * GIB) == sliding


def test_states_of_qwen3_next() -> None:
    """36 layers: convolution in bf16, state in fp32 (sglang 0.5.23); three slots a session with the radix cache."""
    spec = model(("0-35", GDN), ("36-47", heads(16, 2, 256)))

    assert pool(spec, tp=4).state_bytes == 19316736
    assert pool(spec).state_bytes == 77266944
    assert pool(spec, engine_args={"disable_radix_cache": True}).state_slots == 1


def test_states_take_nine_parts_of_nineteen() -> None:
    """--mamba-full-memory-ratio 0.9."""
    found = pool(model(("0-35", GDN), ("36-47", heads(16, 2, 256))))
    states = found.state_count(100 * GIB) * found.state_bytes

    assert states / (100 * GIB - states) == pytest.approx(0.9, rel=1e-3)


@pytest.mark.parametrize(
    ("spec", "options", "page"),
    [(LLAMA_8B, {}, 1), (V32, {}, 64), (V3, {"engine_args": {"attention_backend": "flashmla"}}, 64)],
)
def test_pages(spec: ModelSpec, options: dict[str, Any], page: int) -> None:
    """Page 1 unless a backend forces its own."""
    assert pool(spec, **options).block_size == page


def test_dtype_auto() -> None:
    """DSA keeps bf16 on Hopper and takes fp8 on Blackwell."""
    from dataclasses import replace

    blackwell = replace(H100, name="b200", compute_capability=(10, 0))

    assert pool(V32).kv_dtype == "bf16"
    assert pool(V32, gpu=blackwell).kv_dtype == "fp8"
    assert pool(V32, gpu=blackwell).cell_bytes == 43188


def test_refusal_of_heads() -> None:
    """Query heads that TP does not divide."""
    with pytest.raises(Unsupported, match="not divisible"):
        ENGINE.layout(deployment(model(("0", heads(14, 2, 64))), tp=4))


@pytest.mark.groundtruth
def test_every_cell_of_the_reference(groundtruth: Path) -> None:
    """Cells that a config expresses equal SGLang's own."""
    from kvplan.hf import spec_from_config

    dtypes = {"torch.float8_e4m3fn": "fp8", "torch.float4_e2m1fn_x2": "nvfp4"}
    checked = 0
    for row in json.loads((groundtruth / "golden_engines.json").read_text()):
        if row["engine"] != "sglang" or not row["model_config"]:
            continue
        params = row["params"]
        dtype = "mxfp8" if params.get("dtstr") == "mxfp8" else dtypes.get(params.get("dtype"), "auto")
        layout = "trtllm" if "trtllm" in row["case"] else None
        found = pool(
            spec_from_config(row["model_config"], name=row["case"], source="reference"),
            kv_dtype=dtype,
            tp=int(params.get("tp", 1)),
            pp=2 if "end" in params else 1,
            engine_args={"dsa_decode_backend": layout} if layout else {},
        )
        assert float(found.bytes_per_token) == row["bytes"], row["case"]
        checked += 1
    assert checked >= 10
