"""FLOPs and bytes of a decode step by hand, and the laws that every step obeys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.catalog import load_gpu, load_model
from kvplan.engines.base import Deployment
from kvplan.gpu import Rates
from kvplan.parallel import Parallelism
from kvplan.roofline import Step, attention_work, decode_step, distinct_experts, operations
from kvplan.storage import kv_format

BF16 = kv_format("bf16")
V3, LLAMA = load_model("deepseek-v3"), load_model("llama-3.1-70b")
H200 = load_gpu("h200")


def first(name: str) -> object:
    return next(a for _, a in load_model(name).mixers())


@pytest.mark.parametrize(
    ("model", "fmt", "tp", "size", "flops"),
    [
        # MLA: 2 x heads x (2 x 512 + 64) FLOPs a token read, the latent copied (arXiv 2405.04434)
        ("deepseek-v3", "bf16", 1, 1152, 2 * 128 * 1088),
        ("deepseek-v3", "bf16", 8, 1152, 2 * 16 * 1088),
        ("deepseek-v3", "fp8_ds_mla", 1, 656, 2 * 128 * 1088),
        # GQA: 2 x heads x (128 + 128), K and V heads shared out
        ("llama-3.1-70b", "bf16", 1, 4096, 2 * 64 * 256),
        ("llama-3.1-70b", "bf16", 8, 512, 2 * 8 * 256),
        # MQA reads one head whatever the TP
        ("falcon-7b", "bf16", 1, 256, 2 * 71 * 128),
    ],
)
def test_attention_of_one_token(model: str, fmt: str, tp: int, size: int, flops: int) -> None:
    """Bytes and FLOPs for each token of context, one layer, one rank."""
    work = attention_work(first(model), 1000, kv_format(fmt), Parallelism(tp=tp))  # type: ignore[arg-type]

    assert work == (1000 * size, 1000 * flops)


def test_intensity_of_mla_is_set_by_heads() -> None:
    """1.89 FLOP/B a query head in bf16: 242 at 128 heads (mla_decode arithmetic), whatever the context."""
    size, flops = attention_work(first("deepseek-v3"), 65536, BF16, Parallelism())  # type: ignore[arg-type]

    assert flops / size == pytest.approx(241.8, abs=0.1)


def test_sparse_attention_reads_top_k_but_all_index_keys() -> None:
    """DeepSeek-V3.2 at 100k: 2,048 entries of 1,152 B and 100k keys of 132 B."""
    size, _ = attention_work(first("deepseek-v3.2"), 102400, BF16, Parallelism())  # type: ignore[arg-type]

    assert size == 2048 * 1152 + 102400 * 132


@pytest.mark.parametrize(("tokens", "expected"), [(1, 8.0), (8, 57.4), (32, 163), (64, 222), (128, 252)])
def test_distinct_experts_of_a_batch(tokens: int, expected: float) -> None:
    """256 experts, 8 chosen: 256 x (1 - (1 - 8/256) ** tokens)."""
    assert distinct_experts(256, 8, tokens) == pytest.approx(expected, abs=0.6)


def test_experts_work_for_the_sessions_of_all_replicas() -> None:
    """Eight ranks share out the experts by columns or whole: the work for as many sessions in all is the same."""

    def expert_flops(parallel: Parallelism) -> int:
        ops = operations(load_model("deepseek-v3"), kv_format("bf16"), parallel)
        return sum(op.count * op.flops for op in ops if op.experts[0])

    columns, whole = expert_flops(Parallelism(tp=8)), expert_flops(Parallelism(dp=8, ep=8))

    assert 64 * columns == pytest.approx(64 // 8 * whole)
    assert expert_flops(Parallelism(dp=8)) == expert_flops(Parallelism())


def test_weights_of_a_step_are_the_models() -> None:
    """One step reads every dense weight once: GEMMs of Llama-3.1-70B are its parameters without the embedding."""
    ops = operations(LLAMA, BF16, Parallelism())
    read = sum(op.count * op.weight_bytes for op in ops)

    assert read == pytest.approx(2 * (70_553_706_496 - 128256 * 8192), rel=1e-3)
    assert sum(op.count * op.flops for op in ops) == pytest.approx(read, rel=1e-3)


def step(batch: int, tokens: int, tp: int = 8, pp: int = 1, spec: str = "llama-3.1-70b") -> Step:
    deployment = Deployment(spec=load_model(spec), gpu=H200, max_model_len=tokens, parallel=Parallelism(tp=tp, pp=pp))
    found = decode_step(deployment, BF16, batch)
    assert found is not None
    return found


@given(st.integers(1, 2000), st.integers(1, 500), st.integers(1, 10**6), st.integers(0, 10**5))
def test_more_work_never_takes_less(batch: int, more: int, tokens: int, longer: int) -> None:
    """A step is monotone in batch and context, and its range holds its centre."""
    base = step(batch, tokens)

    assert base.seconds <= step(batch + more, tokens).seconds
    assert base.seconds <= step(batch, tokens + longer).seconds
    assert base.low_seconds <= base.seconds <= base.high_seconds


def test_the_roof_that_binds() -> None:
    """Small models launch-bound, long contexts memory-bound; MLA at 128 heads turns to arithmetic on one rank."""
    assert step(1, 128, tp=1, spec="qwen2.5-0.5b").bound == "launch"
    assert step(32, 131072).bound == "memory"
    assert step(256, 32768, tp=1, spec="deepseek-v3").bound == "compute"


def test_a_token_passes_through_all_stages() -> None:
    """Pipeline stages do not shorten a step of one session."""
    assert step(1, 4096, tp=4, pp=2).seconds >= 0.99 * step(1, 4096, tp=4).seconds


def test_unknown_peaks_give_no_speed() -> None:
    """Nothing is guessed for a GPU without figures."""
    unknown = replace(H200, flops_per_s=Rates(), sources={k: v for k, v in H200.sources.items() if k != "flops_per_s"})
    deployment = Deployment(spec=V3, gpu=unknown, max_model_len=4096)

    assert decode_step(deployment, BF16, 1) is None
