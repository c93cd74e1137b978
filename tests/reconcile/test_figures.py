"""Which figures are compared, and that a figure agrees exactly where it would have been printed so.

GROUPED costs 131,072 B a token; LATENT 36,864; WINDOWED 16,384 in its growing layers and 32,768 in its windows.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.causes import UNEXPLAINED
from kvplan.logs import Observed, Pool, Reading, parse_metrics
from kvplan.reconcile.comparison import Range, compared
from kvplan.units import GIB, MIB
from tests.small import GROUPED, LATENT, WINDOWED
from tests.startups import blocks, concurrency, held, ledger, pool, read, tokens, vllm

ONE = {"tensor_parallel_size": 1, "kv_cache_dtype": "bf16"}


@given(st.integers(1, 10**13), st.integers(-200, 200))
def test_a_figure_agrees_where_it_would_have_been_printed_so(size: int, off: int) -> None:
    """0.01 GiB is the step: what rounds to the same print agrees, the next step does not."""
    printed = Reading("weights_bytes", round(round(size / GIB, 2) * GIB), 0.01 * GIB)

    assert compared("weights_bytes", printed, Range.exact(size), "").agrees
    far = size + (1 if off > 0 else -1) * 0.0151 * GIB
    assert not compared("weights_bytes", printed, Range.exact(far), "").agrees


def test_a_range_agrees_up_to_its_ends_and_no_further() -> None:
    printed = Reading("activation_bytes", 10 * GIB, 0.01 * GIB)

    assert compared("activation_bytes", printed, Range(8 * GIB, 7 * GIB, 9.996 * GIB), "").agrees
    assert not compared("activation_bytes", printed, Range(8 * GIB, 7 * GIB, 9.99 * GIB), "").agrees


def test_blocks_follow_from_the_pool_and_tokens_from_the_blocks() -> None:
    """8.00 GiB may be up to 8.005: 4,098 blocks."""
    found = held(vllm(pool("8.00"), blocks(4098), tokens(65_568), concurrency(8192, 8.0), max_model_len=8192, **ONE))

    assert all(found[q].agrees for q in ("num_gpu_blocks", "kv_tokens", "max_concurrency"))
    assert found["num_gpu_blocks"].predicted == 4096
    assert found["kv_tokens"].predicted == 65_568


@pytest.mark.parametrize(("count", "agrees"), [(4092, False), (4093, True), (4098, True), (4099, False)])
def test_blocks_agree_within_the_rounding_of_the_pool(count: int, agrees: bool) -> None:
    assert held(vllm(pool("8.00"), blocks(count), **ONE))["num_gpu_blocks"].agrees is agrees


def test_replicas_print_one_line_each_and_the_least_of_both_is_compared() -> None:
    lines = (
        "(EngineCore_0 pid=1) INFO [x.py:1] Available KV cache memory: 8.00 GiB",
        "(EngineCore_1 pid=2) INFO [x.py:1] Available KV cache memory: 7.00 GiB",
        "(EngineCore_0 pid=1) INFO [x.py:1] GPU KV cache size: 65,536 tokens",
        "(EngineCore_1 pid=2) INFO [x.py:1] GPU KV cache size: 57,344 tokens",
    )

    assert held(read(*lines))["kv_tokens"].agrees


def test_without_a_pool_the_token_line_implies_the_blocks() -> None:
    """65,536 tokens are 4,096 blocks, so 8 sessions of 8,192."""
    flags = {"max_model_len": 8192, **ONE}

    assert held(vllm(tokens(65_536), concurrency(8192, 8.0), **flags))["max_concurrency"].agrees
    assert not held(vllm(tokens(65_536), concurrency(8192, 9.0), **flags))["max_concurrency"].agrees
    assert not held(vllm(tokens(65_537), **flags))["kv_tokens"].agrees


def test_metrics_are_exact() -> None:
    text = (
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="4096",kv_cache_size_tokens="65536",'
        'kv_cache_max_concurrency="8.0",cache_dtype="auto"} 1.0'
    )
    found = held(parse_metrics(text), unsaid={"context": 8192})

    assert set(found) == {"block_size", "kv_tokens", "max_concurrency"}
    assert all(comparison.agrees for comparison in found.values())


def test_a_refused_start_states_what_it_needs_and_what_would_fit() -> None:
    words = (
        "ValueError: To serve at least one request with the models's max seq len (32768), (4.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (1.00 GiB). Based on the available memory, the "
        "estimated maximum model length is 8192. Try"
    )
    found = held(vllm(pool("1.00"), words, max_model_len=32768, **ONE))

    assert found["needed_kv_bytes"].agrees
    assert found["estimated_max_model_len"].agrees
    assert found["estimated_max_model_len"].predicted == 8192


def test_lines_of_memory_come_with_the_ranges_of_the_budget() -> None:
    found = held(vllm(*ledger("72.00", "13.00", "2.00", "0.30"), pool("56.70"), gpu_memory_utilization=0.9, **ONE))

    assert {"weights_bytes", "activation_bytes", "non_torch_bytes", "available_kv_bytes", "ledger_kv_bytes"} <= set(
        found
    )
    assert found["activation_bytes"].low < found["activation_bytes"].predicted < found["activation_bytes"].high
    assert found["ledger_kv_bytes"].agrees


def test_the_fullest_rank_is_compared_for_what_memory_goes_to() -> None:
    lines = [
        f"Worker_TP{n}: Model loading took {size:.2f} GiB memory and 9.0 seconds" for n, size in ((0, 6.6), (1, 6.5))
    ]

    assert held(vllm(*lines, tensor_parallel_size=2))["weights_bytes"].observed == round(6.6 * GIB)


def test_what_vllm_0_33_calls_consumed_is_weights_and_non_torch() -> None:
    words = (
        "Actual usage is 15.30 GiB for consumed memory (weights + non-torch), 2.00 GiB for peak activation, and "
        "0.50 GiB for CUDAGraph memory."
    )
    found = held(vllm("Model loading took 15.00 GiB memory and 9.0 seconds", words, version="0.33.0", **ONE))

    assert found["non_torch_bytes"].observed == pytest.approx(0.3 * GIB, abs=2)


def test_a_stated_pool_is_exact() -> None:
    flags = {"kv_cache_memory_bytes": 8 * GIB, **ONE}

    assert held(vllm(pool("8.00"), **flags))["available_kv_bytes"].agrees
    assert held(vllm(pool("8.10"), **flags))["available_kv_bytes"].cause == UNEXPLAINED


def test_no_room_for_a_pool_is_no_pool() -> None:
    found = held(vllm(pool("-1.05"), gpu_memory_utilization=0.1, **ONE))

    assert found["available_kv_bytes"].agrees


def test_weights_of_a_gguf_file_are_not_compared() -> None:
    lines = ("Model loading took 4.3752 GiB memory and 9.0 seconds",)

    assert "weights_bytes" not in held(vllm(*lines, quantization="gguf"))
    assert "weights_bytes" in held(vllm(*lines))


SGLANG = "[2026-01-01 00:00:00 TP0] "


def test_sglang_pools_by_their_slots_and_tokens_by_the_pool() -> None:
    """2 GiB of a latent cache: 58,253 tokens and one spare page of a token."""
    found = held(
        read(
            f"{SGLANG}KV Cache is allocated. dtype: torch.bfloat16, #tokens: 58253, KV size: 2.00 GB",
            f"{SGLANG}max_total_num_tokens=58253, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            "max_running_requests=2048, context_len=8192, available_gpu_mem=10.00 GB",
        ),
        LATENT,
    )

    assert all(found[q].agrees for q in ("pool_kv_bytes", "max_total_num_tokens", "max_running_requests"))


def test_sglang_admits_no_more_requests_than_pool_and_scheduler() -> None:
    line = "max_total_num_tokens=100, chunked_prefill_size=8192, max_running_requests=9000, context_len=8192"
    lines = (f"{SGLANG}KV Cache is allocated. #tokens: 100, KV size: 0.01 GB", SGLANG + line)

    assert not held(read(*lines), LATENT)["max_running_requests"].agrees


def test_sglang_windows_have_a_pool_of_their_own() -> None:
    """10,000 growing slots of 16,384 B and 8,000 sliding ones of 32,768 B, a spare page each."""
    gib = {"full": 10_001 * 16_384 / GIB / 2, "swa": 8_001 * 32_768 / GIB / 2}
    lines = [
        f"{SGLANG}{name} KV Cache is allocated. #tokens: {n}, K size: {gib[k]:.2f} GB, V size: {gib[k]:.2f} GB"
        for name, k, n in (("SWA", "swa", 8000), ("Full", "full", 10_000))
    ]
    found = held(read(*lines), WINDOWED)

    assert found["pool_full_bytes"].agrees
    assert found["pool_swa_bytes"].agrees


def test_tokens_do_not_follow_from_one_of_two_pools() -> None:
    lines = (
        f"{SGLANG}Full KV Cache is allocated. #tokens: 10000, K size: 0.08 GB, V size: 0.08 GB",
        f"{SGLANG}max_total_num_tokens=10000, chunked_prefill_size=8192, max_running_requests=16, context_len=8192",
    )

    assert "max_total_num_tokens" not in held(read(*lines), WINDOWED)


@pytest.mark.parametrize(("fraction", "agrees"), [(0.85, True), (0.80, False)])
def test_sglang_pool_is_what_is_free_less_the_slack(fraction: float, agrees: bool) -> None:
    """62.08 - 78.49 x 0.15 = 50.31, as one public log has it."""
    observed = Observed(
        engine="sglang",
        source="a.log",
        flags={"mem_fraction_static": fraction},
        readings=(
            Reading("free_before_load_bytes", int(78.49 * GIB), 0.01 * GIB),
            Reading("free_after_load_bytes", int(62.08 * GIB), 0.01 * GIB),
            Reading("kv_pool_bytes", int(50.28 * GIB), 0.01 * GIB),
        ),
    )

    assert held(observed)["ledger_kv_bytes"].agrees is agrees


def test_tensorrt_llm_states_its_rate_and_its_arithmetic() -> None:
    """(79.00 - 60.00 + 1.00) x 0.9 = 18 GiB; 147,456 tokens of 131,072 B."""
    peak = (
        "[TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 60.00 GiB, available KV cache "
        "memory when calculating max tokens: 18.00 GiB, fraction is set 0.9, kv size is 131072. device total memory "
        "79.00 GiB, , tmp kv_mem 1.00 GiB"
    )
    allocated = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 18.00 GiB for max tokens in paged KV cache (147456)."
    found = held(read(peak, allocated))

    assert all(found[q].agrees for q in ("ledger_kv_bytes", "per_token_bytes", "allocated_kv_bytes", "kv_tokens"))
    assert held(read(peak, allocated), LATENT)["per_token_bytes"].predicted == 36_864


def _llama_cpp(*pools: Pool, **flags: object) -> Observed:
    return Observed(engine="llama.cpp", source="a.log", pools=pools, flags=flags)


def _size(name: str, mib: float) -> Reading:
    return Reading(name, round(mib * MIB), 0.01 * MIB)


def test_llama_cpp_cells_pools_and_the_context_as_started() -> None:
    """8,192 cells of 128 KiB: 1 GiB."""
    cells = Pool(
        kind="kv",
        line=1,
        slots=8192,
        sequences=1,
        streams=1,
        total=_size("total", 1024.0),
        types={"k": "f16", "v": "f16"},
    )
    found = held(_llama_cpp(cells, n_ctx=8192))

    assert all(found[q].agrees for q in ("pool_kv_bytes", "kv_cells", "allocated_kv_bytes"))
    assert not held(_llama_cpp(replace(cells, slots=8448), n_ctx=8192))["kv_cells"].agrees


def test_llama_cpp_pools_are_summed_only_where_all_are_shown() -> None:
    full = Pool(
        kind="full",
        line=1,
        slots=8192,
        sequences=1,
        streams=1,
        total=_size("total", 128.0),
        types={"k": "f16", "v": "f16"},
    )
    swa = Pool(
        kind="swa",
        line=2,
        slots=1536,
        sequences=1,
        streams=1,
        total=_size("total", 48.0),
        types={"k": "f16", "v": "f16"},
    )

    assert "allocated_kv_bytes" not in held(_llama_cpp(full, n_ctx=8192), WINDOWED)
    assert held(_llama_cpp(full, swa, n_ctx=8192), WINDOWED)["allocated_kv_bytes"].agrees


def test_pools_of_a_draft_do_not_count() -> None:
    own = Pool(kind="kv", line=1, slots=8192, sequences=1, streams=1, total=_size("total", 1024.0))
    draft = replace(own, context=1, slots=4096, total=_size("total", 448.0))

    assert held(_llama_cpp(own, draft, n_ctx=8192))["allocated_kv_bytes"].observed == 1024 * MIB


def test_the_rank_whose_pools_are_smallest_is_compared() -> None:
    sizes = {"TP0": 2.0, "TP1": 1.0}
    pools = tuple(
        Pool(
            kind="kv",
            line=1,
            rank=rank,
            slots=int(gib * GIB) // 36_864 - 1,
            parts={"latent": Reading("latent_bytes", int(gib * GIB), 0.01 * GIB)},
        )
        for rank, gib in sizes.items()
    )

    assert held(Observed(engine="sglang", source="a.log", pools=pools), LATENT)["pool_kv_bytes"].observed == GIB


def test_a_model_of_the_wrong_size_agrees_with_nothing() -> None:
    found = held(vllm(pool("8.00"), blocks(4096), **ONE), replace(LATENT, name="wrong"))

    assert not found["num_gpu_blocks"].agrees
    assert found["num_gpu_blocks"].cause == UNEXPLAINED


def test_grouped_is_what_the_docstring_says() -> None:
    assert held(vllm(pool("8.00"), blocks(4096), **ONE), GROUPED)["num_gpu_blocks"].agrees
