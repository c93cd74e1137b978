"""llama.cpp's allocation: cells, streams, sliding cells, states; sizes as its own log prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.mamba import Mamba2
from kvplan.engines.llama_cpp import ENGINE, LlamaCppLayout
from kvplan.errors import Unsupported
from kvplan.model import LayerGroup, ModelSpec
from tests.engines.toys import deployment, heads, latent, model

MIB = 2**20
LLAMA_8B = model(("0-31", heads(32, 8, 128)))
GPT_OSS = model(("0-23/2", heads(64, 8, 64, window=128)), ("1-23/2", heads(64, 8, 64)))


def layout(spec: ModelSpec, n_ctx: int, **args: Any) -> LlamaCppLayout:
    found = ENGINE.layout(deployment(spec, n_ctx, engine_args={"n_ctx": n_ctx, **args}))
    assert isinstance(found, LlamaCppLayout)
    return found


def allocated(spec: ModelSpec, n_ctx: int, **args: Any) -> dict[str, int]:
    found = layout(spec, n_ctx, **args)
    return found.parts(n_ctx, found.n_seq)


@pytest.mark.parametrize(
    ("args", "n_ctx", "k", "v"),
    [
        ({}, 4096, 256, 256),
        ({}, 4097, 272, 272),
        ({}, 100, 16, 16),
        ({"type_k": "f32", "type_v": "f32"}, 4096, 512, 512),
        ({"type_k": "q8_0", "type_v": "q8_0"}, 4096, 136, 136),
        ({"type_k": "q8_0"}, 4096, 136, 256),
        ({"n_seq_max": 4}, 4096, 256, 256),
        ({"n_seq_max": 3}, 4096, 288, 288),
        ({"n_seq_max": 4, "kv_unified": True}, 4096, 256, 256),
    ],
)
def test_llama_3_8b(args: dict[str, Any], n_ctx: int, k: int, v: int) -> None:
    """K and V in MiB (llama.cpp b11739, allocation log)."""
    assert allocated(LLAMA_8B, n_ctx, **args) == {"K": k * MIB, "V": v * MIB, "state": 0}


@pytest.mark.parametrize(
    ("args", "mib"),
    [({}, 201), ({"n_ubatch": 2048}, 219), ({"n_seq_max": 4, "kv_unified": True}, 204), ({"swa_full": True}, 384)],
)
def test_gpt_oss_sliding_cells(args: dict[str, Any], mib: int) -> None:
    """window x sequences + ubatch cells, padded to 256 (b11739)."""
    assert allocated(GPT_OSS, 16384, **args)["K"] == mib * MIB


def test_a_latent_is_one_row_without_v() -> None:
    """DeepSeek-V3: 61 rows of 576 elements; the indexer adds a row in the K type (b11739)."""
    assert allocated(model(("0-60", latent())), 4096) == {"K": 287834112, "V": 0, "state": 0}
    assert allocated(model(("0-60", latent(index=True))), 4096)["K"] == 351797248
    assert allocated(model(("0-60", latent(index=True))), 4096, type_k="q8_0")["K"] == 186892288


def test_mamba_states_are_fp32_per_sequence() -> None:
    """48 layers, 4 sequences: R 7.31 MiB and S 288 MiB, whatever the context (b11739)."""
    mamba = Mamba2(num_heads=48, head_dim=64, state_size=128, n_groups=1, conv_kernel=4)

    assert allocated(model(("0-47", mamba)), 4096, n_seq_max=4) == {"K": 0, "V": 0, "state": 7667712 + 301989888}


def test_deepseek_v4_keeps_five_caches() -> None:
    """10 layers (2 window, 4 CSA, 4 HCA), 2 sequences of 32,768 (b11739)."""

    def compressed(ratio: int) -> CompressedAttention:
        return CompressedAttention(
            num_attention_heads=64, head_dim=512, qk_rope_head_dim=64, sliding_window=128, compress_ratio=ratio,
            compressor_overlap=ratio == 4, index_head_dim=128 if ratio == 4 else None,
        )  # fmt: skip

    spec = model(("0-1", compressed(0)), ("2-8/2", compressed(4)), ("3-9/2", compressed(128)))

    assert allocated(spec, 65536, n_seq_max=2) == {"K": 101711872, "V": 0, "state": 4849664}


def test_what_llama_cpp_refuses() -> None:
    """A block of 32 that does not divide a head; different K and V types of a latent; tensor parallelism."""
    with pytest.raises(Unsupported, match="does not divide head dim 80"):
        layout(model(("0", heads(8, 8, 80))), 4096, type_k="q8_0")
    with pytest.raises(Unsupported, match="different K"):
        layout(model(("0", latent())), 4096, type_k="q8_0", type_v="f16")
    with pytest.raises(Unsupported, match="use --pp"):
        ENGINE.layout(deployment(LLAMA_8B, tp=2))


def test_the_longest_context_fits_and_the_next_does_not() -> None:
    """By bisection over multiples of 256."""
    found = layout(GPT_OSS, 131072)
    pool = 500 * MIB
    longest = found.max_context(pool)

    assert found.session_bytes(longest) <= pool < found.session_bytes(longest + 256)


def _spec_of(config: dict[str, Any]) -> ModelSpec:
    """A GGUF header's geometry, as the reference data states it."""
    count = config["block_count"]
    if "ssm.conv_kernel" in config:
        mamba = Mamba2(
            num_heads=config["ssm.time_step_rank"],
            head_dim=config["ssm.inner_size"] // config["ssm.time_step_rank"],
            state_size=config["ssm.state_size"],
            n_groups=config["ssm.group_count"],
            conv_kernel=config["ssm.conv_kernel"],
        )
        return model((f"0-{count - 1}", mamba))
    if "attention.key_length_mla" in config:
        return model((f"0-{count - 1}", latent(index="attention.indexer.key_length" in config)))
    k, v = config["attention.key_length"], config["attention.value_length"]
    query, kv = config["attention.head_count"], config["attention.head_count_kv"]
    if "attention.sliding_window" in config:
        window = config["attention.sliding_window"]
        return model((f"0-{count - 1}/2", heads(query, kv, k, v, window)), (f"1-{count - 1}/2", heads(query, kv, k, v)))
    return model((f"0-{count - 1}", heads(query, kv, k, v)))


@pytest.mark.groundtruth
def test_every_row_of_the_reference_log(groundtruth: Path) -> None:
    """K, V and states equal llama.cpp's own, byte for byte (DeepSeek-V4 stands in a test of its own)."""
    rows = [r for r in json.loads((groundtruth / "golden_engines.json").read_text()) if r["engine"] == "llama.cpp"]
    names = {"tk": "type_k", "tv": "type_v", "n_seq": "n_seq_max", "unified": "kv_unified", "ubatch": "n_ubatch"}
    checked = 0
    for row in rows:
        if "bytes" not in row or "attention.compress_ratios" in row["model_config"]:
            continue
        params = {names.get(k, k): v for k, v in row["params"].items() if k != "n_ctx"}
        params.setdefault("type_v", params["type_k"]) if "mla" in str(
            row["model_config"]
        ) and "type_k" in params else None
        got = allocated(_spec_of(row["model_config"]), row["params"]["n_ctx"], **params)
        want = row["bytes"]
        assert got["K"] == want.get("K", 0), row["case"]
        assert got["V"] == want.get("V", 0), row["case"]
        assert got["state"] == want.get("R", 0) + want.get("S", 0), row["case"]
        checked += 1
    assert checked >= 20


def test_groups_of_one_layer_add_states_once() -> None:
    """A layer with attention and a state holds both."""
    mamba = Mamba2(num_heads=2, head_dim=4, state_size=8, n_groups=1, conv_kernel=4)
    spec = model(("0", heads(2, 2, 32)))
    both = ModelSpec(
        name="both", source="test", model_type="toy", torch_dtype="bfloat16", hidden_size=8, vocab_size=8,
        max_position_embeddings=4096, layer_groups=(LayerGroup(layers="0", attention=(heads(2, 2, 32), mamba)),),
    )  # fmt: skip

    assert allocated(both, 256)["K"] == allocated(spec, 256)["K"]
    assert allocated(both, 256)["state"] == (2 * 4 + 2 * 8) * 3 * 4 + 2 * 4 * 8 * 4
