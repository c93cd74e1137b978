"""Each known cause of a capacity that differs, on a log that shows it and on one whose numbers do not support it.

GROUPED costs 131,072 B a token, so a block of 16 takes 2 MiB: 8 GiB are 4,096 blocks or 65,536 tokens.
"""

from __future__ import annotations

import pytest

from kvplan.causes import UNEXPLAINED
from kvplan.logs import Observed, parse_metrics
from tests.small import GROUPED, LATENT, WINDOWED
from tests.startups import blocks, concurrency, held, pool, read, tokens, vllm


def test_figures_that_agree_have_no_cause() -> None:
    found = held(vllm(pool("8.00"), tokens(65_536), concurrency(8192, 8.0), max_model_len=8192))

    assert all(found[q].agrees and found[q].cause == "" for q in ("kv_tokens", "max_concurrency"))


def test_a_difference_that_nothing_supports_is_unexplained() -> None:
    assert (
        held(vllm(pool("8.00"), tokens(50_000), kv_cache_dtype="bf16", tensor_parallel_size=1))["kv_tokens"].cause
        == UNEXPLAINED
    )


OVERRIDE = "num_gpu_blocks_override=100 replaces the blocks that the memory allows"


@pytest.mark.parametrize(("counted", "cause"), [(100, OVERRIDE), (101, UNEXPLAINED)])
def test_an_override_replaces_what_the_memory_allows(counted: int, cause: str) -> None:
    flags = {"num_gpu_blocks_override": 100, "tensor_parallel_size": 1, "kv_cache_dtype": "bf16"}

    assert held(vllm(pool("8.00"), blocks(counted), **flags))["num_gpu_blocks"].cause == cause
    assert held(vllm(pool("8.00"), tokens(16 * counted), **flags))["kv_tokens"].cause == cause


def test_an_override_is_read_from_its_own_line_and_the_memory_is_still_compared() -> None:
    found = held(vllm(pool("8.00"), "Overriding num_gpu_blocks=4096 with num_gpu_blocks_override=100", tokens(1600)))

    assert found["profiled_num_gpu_blocks"].agrees
    assert found["num_gpu_blocks"].cause == OVERRIDE
    assert found["kv_tokens"].agrees


STAGES = {"pipeline_parallel_size": 2, "tensor_parallel_size": 1, "kv_cache_dtype": "bf16"}


def test_tokens_below_the_one_stage_that_printed_are_another_stages() -> None:
    found = held(vllm(pool("8.00", "Worker_PP0"), tokens(120_000), **STAGES))

    assert found["kv_tokens"].predicted == 131_072
    assert found["kv_tokens"].cause.startswith("1 of 2 stages printed a pool; tokens are the least over all stages")


@pytest.mark.parametrize(
    "lines",
    [
        (pool("8.00", "Worker_PP0"), tokens(140_000)),
        (pool("8.00", "Worker_PP0"), pool("8.00", "Worker_PP1"), tokens(120_000)),
    ],
    ids=["more than the stage holds", "all stages printed"],
)
def test_another_stage_is_no_cause_where_it_cannot_bind(lines: tuple[str, ...]) -> None:
    assert held(vllm(*lines, **STAGES))["kv_tokens"].cause == UNEXPLAINED


def test_stages_that_all_printed_bind_by_their_own_layers() -> None:
    found = held(vllm(pool("8.00", "Worker_PP0"), pool("6.00", "Worker_PP1"), tokens(98_304), **STAGES))

    assert found["kv_tokens"].agrees


def _refused(needed: str) -> tuple[str, str]:
    words = (
        "ValueError: To serve at least one request with the models's max seq len (32768), "
        f"({needed} GiB KV cache is needed, which is larger than the available KV cache memory (1.00 GiB). Try"
    )
    return pool("1.00", "Worker_PP0"), words


@pytest.mark.parametrize(
    ("needed", "cause"),
    [("4.00", "start-up counts the layers of all stages against the pool of one"), ("6.00", UNEXPLAINED)],
)
def test_start_up_counts_all_stages_against_the_pool_of_one(needed: str, cause: str) -> None:
    found = held(vllm(*_refused(needed), max_model_len=32768, **STAGES))

    assert found["needed_kv_bytes"].predicted == 2 * 2**30
    assert found["needed_kv_bytes"].cause == cause


RANKS = {"tensor_parallel_size": 2, "kv_cache_dtype": "bf16", "max_model_len": 8192}


def test_tokens_just_below_the_one_rank_that_printed_are_another_ranks() -> None:
    found = held(vllm(pool("8.00", "Worker_TP0"), tokens(129_760), concurrency(8192, 15.84), **RANKS))

    assert found["kv_tokens"].cause == "1 of 2 ranks printed a pool; tokens are the least over ranks: one has 7.92 GiB"


@pytest.mark.parametrize(
    "lines",
    [
        (pool("8.00", "Worker_TP0"), pool("8.00", "Worker_TP1"), tokens(129_760)),
        (pool("8.00", "Worker_TP0"), tokens(132_000)),
        (pool("8.00", "Worker_TP0"), tokens(20_000)),
        (pool("8.00", "Worker_TP0"), tokens(129_760), concurrency(8192, 12.0)),
    ],
    ids=["all ranks printed", "more tokens", "far fewer tokens", "tokens and concurrency disagree"],
)
def test_another_rank_is_no_cause_where_the_numbers_contradict_it(lines: tuple[str, ...]) -> None:
    assert held(vllm(*lines, **RANKS))["kv_tokens"].cause == UNEXPLAINED


def test_the_least_of_the_ranks_that_printed_is_what_is_planned_with() -> None:
    lines = (pool("8.00", "Worker_TP0"), pool("7.50", "Worker_TP1"), tokens(122_880))

    assert held(vllm(*lines, **RANKS))["kv_tokens"].agrees


def test_the_token_line_of_hybrids_before_0_20_is_blocks_over_groups() -> None:
    """1 GiB are 4,096 blocks of 256 KiB; three groups: 4096 // 3 x 16. Before 0.9 a block was of all layers."""
    observed = vllm(pool("1.00"), tokens(21_840), version=None, tensor_parallel_size=1, max_model_len=32768)
    found = held(observed, WINDOWED, unsaid={"version": "0.33"})["kv_tokens"]

    assert found.cause == "vLLM 0.7 and 0.19 print it so; 0.33 was assumed"
    other = vllm(pool("1.00"), tokens(22_400), version=None, tensor_parallel_size=1, kv_cache_dtype="bf16")
    assert held(other, WINDOWED)["kv_tokens"].cause == UNEXPLAINED


def test_what_the_log_leaves_open_is_all_named() -> None:
    """Twice the tokens: fp8, or two ranks."""
    found = held(vllm(pool("8.00"), tokens(131_072)))["kv_tokens"].cause

    assert "the cache is fp8, though no flag says so" in found
    assert "the log does not state tensor parallelism; --tp 2 explains it" in found


@pytest.mark.parametrize(
    ("flags", "absent"),
    [({"kv_cache_dtype": "bf16"}, "fp8"), ({"tensor_parallel_size": 1}, "--tp")],
    ids=["a KV dtype is stated", "tensor parallelism is stated"],
)
def test_what_the_log_states_is_no_cause(flags: dict[str, object], absent: str) -> None:
    assert absent not in held(vllm(pool("8.00"), tokens(131_072), **flags))["kv_tokens"].cause


def test_metrics_leave_out_the_maximum_length() -> None:
    text = (
        'vllm:cache_config_info{num_gpu_blocks="4096",kv_cache_size_tokens="65536",kv_cache_max_concurrency="16.0"} 1.0'
    )
    assert (
        held(parse_metrics(text))["max_concurrency"].cause
        == "the maximum length is not stated; --context 4096 explains it"
    )

    known = held(parse_metrics(text), unsaid={"context": 8192})
    assert known["max_concurrency"].cause == UNEXPLAINED


@pytest.mark.parametrize(
    ("printed", "cause"),
    [(61_680, "the engine added 2 padding layers to even out its groups"), (60_000, UNEXPLAINED)],
)
def test_padding_layers_that_the_prediction_lacks(printed: int, cause: str) -> None:
    """32 layers and 2 of padding: 65,536 x 32 / 34."""
    padding = "Add 2 padding layers, may waste at most 5.88% KV cache memory"
    observed = vllm(pool("8.00"), padding, tokens(printed), kv_cache_dtype="bf16", tensor_parallel_size=1)

    assert held(observed)["kv_tokens"].cause == cause


def _llama_cpp(mib: float) -> Observed:
    return read(
        "llama_context: n_ctx         = 8192",
        f"llama: KV self size  = {mib:.2f} MiB, K (f16): {mib:.2f} MiB, V (f16): 0.00 MiB",
    )


@pytest.mark.parametrize(("mib", "predates"), [(32 * 8192 * 16 * 320 * 2 / 2**20, True), (1000.0, False)])
def test_gguf_files_from_before_mla_cache_every_head(mib: float, predates: bool) -> None:
    """LATENT: 16 heads of 128 + 64 + 128 against one row of 576."""
    cause = held(_llama_cpp(mib), LATENT)["allocated_kv_bytes"].cause

    assert ("predates MLA" in cause) is predates
    assert predates or cause == UNEXPLAINED


def test_a_model_without_latent_layers_has_no_heads_to_expand() -> None:
    assert held(_llama_cpp(1000.0), GROUPED)["allocated_kv_bytes"].cause == UNEXPLAINED


@pytest.mark.parametrize(
    ("config", "printed", "takes"),
    [
        ({"method": "eagle3", "num_speculative_tokens": 3}, 52_000, True),
        ({"method": "eagle3", "num_speculative_tokens": 3}, 70_000, False),
        (None, 52_000, False),
    ],
    ids=["a drafter", "more tokens", "no drafter"],
)
def test_a_drafter_takes_its_part_of_the_blocks(config: object, printed: int, takes: bool) -> None:
    flags = {"speculative_config": config, "kv_cache_dtype": "bf16", "tensor_parallel_size": 1}
    cause = held(vllm(pool("8.00"), tokens(printed), **flags))["kv_tokens"].cause

    assert ("eagle3 drafts: its layers" in cause) is takes
