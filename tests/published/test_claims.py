"""Numbers that were published about KV caches, each through the library or the command line, exact.

Documents: the two founding papers' tables at 128 heads x 128, 30 and 60 layers; DeepSeek-V2 (arXiv 2405.04434, table 1
and section 3.2.3); GQA (arXiv 2305.13245). Two statements mix units or baselines; docs/explanation says how.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kvplan.catalog import load_model
from kvplan.cli import app
from kvplan.compare import compare_row, variant
from kvplan.model import LayerGroup, ModelSpec
from kvplan.storage import kv_format

BF16 = kv_format("bf16")
KINDS = {"mha": "mha", "mqa": "mqa", "gqa8": "gqa:8", "mla": "mla"}


def reference(kind: str, layers: int) -> ModelSpec:
    """The documents' model: 128 heads x 128, as MHA, MQA, GQA-8 or MLA 512 + 64."""
    base = load_model("reference-mla")
    changed = base if kind == "mla" else variant(base, KINDS[kind])
    group = changed.layer_groups[0]
    return replace(changed, layer_groups=(LayerGroup(layers=f"0-{layers - 1}", attention=group.attention),))


def session(kind: str, layers: int, tokens: int) -> int:
    return compare_row(reference(kind, layers), BF16, 1, tokens).session_bytes_per_rank


@pytest.mark.parametrize(("kind", "size"), [("mha", 65536), ("mqa", 512), ("gqa8", 4096), ("mla", 1152)])
def test_token_and_layer(kind: str, size: int) -> None:
    """Bytes of one token in one layer, 16 bit."""
    assert session(kind, 1, 1) == size


@pytest.mark.parametrize(
    ("kind", "layers", "tokens", "sessions", "size"),
    [
        ("mha", 1, 4096, 1, 268435456),
        ("mqa", 1, 4096, 1, 2097152),
        ("gqa8", 1, 4096, 1, 16777216),
        ("mla", 1, 4096, 1, 4718592),
        ("mha", 30, 4096, 1, 8053063680),
        ("gqa8", 30, 4096, 1, 503316480),
        ("mla", 30, 4096, 1, 141557760),
        ("mha", 30, 4096, 32, 257698037760),  # 240 GiB; the "245 GB" in print reads 7,680 MiB x 32 as decimal
        ("mha", 1, 131072, 1, 8589934592),
        ("mha", 60, 131072, 1, 515396075520),
        ("gqa8", 60, 131072, 1, 32212254720),
        ("mla", 60, 131072, 1, 9059696640),
    ],
)
def test_sessions(kind: str, layers: int, tokens: int, sessions: int, size: int) -> None:
    """Bytes of whole sessions and batches."""
    assert session(kind, layers, tokens) * sessions == size


@pytest.mark.parametrize(("dtype", "size"), [("fp8", 576), ("fp8_ds_mla", 656)])
def test_fp8_entries(dtype: str, size: int) -> None:
    """Everything in 8 bit, or FlashMLA's record with scales and a 16-bit rotary key."""
    assert compare_row(reference("mla", 1), kv_format(dtype), 1, 1).session_bytes_per_rank == size


@pytest.mark.parametrize(
    ("small", "large", "saving"),
    [("mla", "mha", 0.982421875), ("mla", "gqa8", 0.71875), ("gqa8", "mha", 0.9375)],
)
def test_savings(small: str, large: str, saving: float) -> None:
    """What one kind saves against another, at the same width."""
    assert 1 - session(small, 30, 4096) / session(large, 30, 4096) == saving


def test_factors() -> None:
    """MLA is 1/57 of MHA, and as large as GQA with 2.25 groups."""
    assert session("mha", 1, 1) / session("mla", 1, 1) == pytest.approx(56.888888889)
    assert session("mla", 1, 1) / session("mqa", 1, 1) == 2.25


@pytest.mark.parametrize(
    ("tp", "gqa8", "mla"), [(1, 2048, 576), (2, 1024, 576), (4, 512, 576), (8, 256, 576), (16, 256, 576)]
)
def test_elements_on_one_rank(tp: int, gqa8: int, mla: int) -> None:
    """KV heads share out, the latent is copied; from TP 4 on GQA-8 is the smaller."""
    elements = {k: compare_row(reference(k, 1), BF16, tp, 1).session_bytes_per_rank // 2 for k in ("gqa8", "mla")}

    assert elements == {"gqa8": gqa8, "mla": mla}


def run(*argv: str) -> dict[str, object]:
    done = CliRunner().invoke(app, [*argv, "--format", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("dtype", "saving"),
    [("6bit", 0.933388157895), ("bf16", 0.822368421053)],
)
def test_deepseek_v2_against_67b(dtype: str, saving: float) -> None:
    """93.3 % is 6 bits an element on average against 16 bits of another model; at equal width it is 82.2 %."""
    answer = run("compare", "deepseek-v2", "--kv-dtype", dtype, "--against", "deepseek-67b", "--tp", "1")

    assert answer["rows"][0]["saving_vs_baseline"] == pytest.approx(saving)  # type: ignore[index]
    assert answer["rows"][0]["saving_vs_mha"] == pytest.approx(0.982421875)  # type: ignore[index]


def test_content_compression() -> None:
    """Hidden 2048 into a latent of 512, K and V of 2048 each: 87.5 %."""
    assert 1 - 512 / (2 * 2048) == 0.875


@pytest.mark.parametrize(
    ("model", "dtype", "tp", "per_token", "fixed"),
    [
        *[("deepseek-v3", "bf16", tp, 70272, 0) for tp in (1, 2, 4, 8)],
        ("llama-3.1-70b", "bf16", 1, 327680, 0),
        ("llama-3.1-70b", "bf16", 2, 163840, 0),
        ("llama-3.1-70b", "bf16", 4, 81920, 0),
        ("llama-3.1-70b", "bf16", 8, 40960, 0),
        ("llama-3.1-70b", "bf16", 16, 40960, 0),
        ("falcon-7b", "bf16", 1, 8192, 0),
        ("deepseek-v3.2", "bf16", 1, 78324, 0),
        ("deepseek-v3.2", "fp8_ds_mla", 1, 48068, 0),
        ("gpt-oss-120b", "bf16", 1, 36864, 4718592),
        ("qwen3-next-80b-a3b", "bf16", 1, 24576, 77266944),
        ("nemotron-h-56b", "bf16", 1, 40960, 912605184),
        ("kimi-linear-48b-a3b", "bf16", 1, 8064, 43417600),
        ("gemma-3-27b", "bf16", 1, 81920, 436207616),
    ],
)
def test_models_that_people_serve(model: str, dtype: str, tp: int, per_token: int, fixed: int) -> None:
    """Slope and intercept at 128k, from the configurations of the hub."""
    row = run("compare", model, "--kv-dtype", dtype, "--tp", str(tp), "--context", "128k")["rows"][0]  # type: ignore[index]

    assert (row["bytes_per_token_per_rank"], row["fixed_bytes_per_session_per_rank"]) == (per_token, fixed)


def test_the_documented_json_keys() -> None:
    """`compare --format json` keeps its contract."""
    answer = run("compare", "deepseek-v3", "--context", "4k", "--tp", "1")

    assert answer["rows"] == [
        {
            "model": "deepseek-v3", "attention": "mla", "kv_dtype": "bf16", "tp": 1, "context_tokens": 4096, "batch": 1,
            "bytes_per_token_per_layer": 1152, "bytes_per_token_per_rank": 70272, "fixed_bytes_per_session_per_rank": 0,
            "session_bytes_per_rank": 287834112, "session_bytes_all_ranks": 287834112,
            "batch_bytes_per_rank": 287834112,
            "saving_vs_mha": 0.982421875,
        }
    ]  # fmt: skip
