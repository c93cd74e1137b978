"""What a log's flags, ranks and pools become: a scenario that plans, with notes on what was left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvplan.errors import KvplanError, UnknownName
from kvplan.logs import Observed, Pool, Reading
from kvplan.plan import Scenario
from kvplan.reconcile.predict import predict
from kvplan.reconcile.scenario import FLAGS, scenario_of
from tests.small import BARE_GPU, GROUPED, LATENT
from tests.startups import concurrency, read, vllm


def _scenario(observed: Observed, **unsaid: Any) -> tuple[Scenario, tuple[str, ...]]:
    return scenario_of(observed, GROUPED, BARE_GPU, unsaid)


def _flags(engine: str, **flags: Any) -> Scenario:
    return _scenario(Observed(engine=engine, source="a.log", flags=flags))[0]


@pytest.mark.parametrize(
    ("engine", "flags", "fields"),
    [
        (
            "vllm",
            {
                "tensor_parallel_size": 4,
                "pipeline_parallel_size": 2,
                "max_model_len": 8192,
                "kv_cache_dtype": "fp8_e4m3",
            },
            {"tp": 4, "pp": 2, "context": 8192, "kv_dtype": "fp8"},
        ),
        (
            "vllm",
            {"gpu_memory_utilization": 0.8, "max_num_seqs": 7},
            {"gpu_memory_utilization": 0.8, "max_num_seqs": 7},
        ),
        (
            "sglang",
            {"tp_size": 8, "context_length": 4096, "mem_fraction_static": 0.8, "page_size": 64},
            {"tp": 8, "context": 4096, "gpu_memory_utilization": 0.8, "block_size": 64},
        ),
        ("sglang", {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, {"tp": 1, "dp": 8}),
        ("sglang", {"tp_size": 4, "dp_size": 2, "enable_dp_attention": False}, {"tp": 4, "dp": 2}),
        (
            "tensorrt-llm",
            {"tensor_parallel_size": 2, "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.7}},
            {"tp": 2, "kv_dtype": "fp8", "gpu_memory_utilization": 0.7},
        ),
        ("tensorrt-llm", {"tensor_parallel_size": 8, "enable_attention_dp": True}, {"tp": 1, "dp": 8}),
        ("llama.cpp", {"n_ctx": 8192, "n_seq_max": 4, "n_ubatch": 256}, {"context": 2048, "max_num_seqs": 4}),
        ("llama.cpp", {"n_ctx": 8192, "n_seq_max": 4, "kv_unified": True}, {"context": 8192}),
    ],
)
def test_flags_become_fields(engine: str, flags: dict[str, Any], fields: dict[str, Any]) -> None:
    scenario = _flags(engine, **flags)

    assert {name: getattr(scenario, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("flags", "context"),
    [
        ({"max_model_len": 8192, "max_seq_len": 32768}, 8192),
        ({"max_seq_len": 32768}, 32768),
        ({"max_model_len": -1, "max_seq_len": 32768}, 32768),
        ({"max_model_len": None, "max_seq_len": 32768}, 32768),
        ({"max_model_len": "auto", "max_seq_len": 32768}, 32768),
        ({}, None),
    ],
)
def test_the_stated_length_goes_before_the_resolved_one_unless_it_states_nothing(
    flags: dict[str, Any], context: int | None
) -> None:
    assert _flags("vllm", **flags).context == context


def test_the_length_of_the_concurrency_line_is_the_one_in_force() -> None:
    observed = vllm(concurrency(10_240, 3.0), max_model_len=-1, max_seq_len=32768)

    assert _scenario(observed, context=4096)[0].context == 10_240


PRINTED: dict[str, Any] = {
    "dtype": "torch.bfloat16",
    "kv_cache_dtype": "auto",
    "quantization": None,
    "speculative_config": None,
    "seed": 0,
    "compilation_config": {"mode": 3, "cudagraph_mode": [2, 1], "pass_config": {"fuse": True}},
    "structured_outputs_config": {"backend": "auto"},
    "kv_transfer_config": {"kv_connector": "LMCacheConnectorV1"},
    "limit_mm_per_prompt": {},
    "override_generation_config": "<object at 0x7f>",
    "device_config": "cuda",
    "tensor_parallel_size": "2",
    "block_size": None,
    "enable_prefix_caching": True,
    "no_such_flag": [1, 2, 3],
}
"""Flags in the forms in which engines print them back."""


def test_flags_as_printed_never_break_the_scenario() -> None:
    scenario, notes = _scenario(Observed(engine="vllm", source="a.log", flags=PRINTED))

    assert scenario.engine_args["dtype"] == "bfloat16"
    assert scenario.tp is None
    assert "tensor_parallel_size='2' is not used: kvplan does not know what it means" in notes
    assert predict(scenario).deployment.max_model_len == 32768


@pytest.mark.parametrize(
    "config",
    [
        "SpeculativeConfig(method='mtp')",
        {"model": "x"},
        {"method": "mtp"},
        {"method": 3, "num_speculative_tokens": 1},
        [1],
    ],
)
def test_a_speculation_that_cannot_be_used_is_left_out_with_a_note(config: Any) -> None:
    scenario, notes = _scenario(vllm(concurrency(8192, 1.0), speculative_config=config))

    assert "speculative_config" not in scenario.engine_args
    assert any(note.startswith("speculative_config=") and "is left out" in note for note in notes)


@pytest.mark.parametrize("key", ["num_speculative_tokens", "num_spec_tokens"])
def test_speculation_is_read_as_stated_and_as_printed_back(key: str) -> None:
    scenario, _ = _scenario(vllm(concurrency(8192, 1.0), speculative_config={"method": "ngram", key: 4, "model": None}))

    assert scenario.engine_args["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 4}


def test_a_bundled_draft_model_is_planned_with_its_own_layers() -> None:
    config = {"method": "draft_model", "num_speculative_tokens": 4, "model": "/models/Qwen3-0.6B"}
    scenario, _ = _scenario(vllm(concurrency(8192, 1.0), speculative_config=config))

    assert scenario.engine_args["speculative_config"]["model"].name == "qwen3-0.6b"


def test_a_value_of_the_wrong_kind_is_left_out_with_a_note() -> None:
    observed = Observed(
        engine="sglang", source="a.log", flags={"swa_full_tokens_ratio": "most", "attention_backend": "fa3"}
    )
    scenario, notes = _scenario(observed)

    assert scenario.engine_args == {"attention_backend": "fa3"}
    assert "swa_full_tokens_ratio='most' is left out: kvplan does not know what it means" in notes


def test_a_flag_that_the_engine_refuses_is_left_out_with_its_reason() -> None:
    scenario = replace(_flags("vllm"), engine_args={"mamba_cache_mode": "sometimes", "enforce_eager": True})
    predicted = predict(scenario)

    assert predicted.scenario.engine_args == {"enforce_eager": True}
    assert predicted.notes[0].startswith("mamba_cache_mode='sometimes' is left out: engine_args.mamba_cache_mode: ")


def test_a_release_without_rules_is_planned_as_the_newest_with_a_note() -> None:
    predicted = predict(replace(_flags("vllm"), engine="vllm@0.99.1"))

    assert predicted.notes[0].startswith("version 0.99.1 is left out: vllm@0.99.1: the cache rules of vLLM ")


def test_what_leaving_out_does_not_help_is_refused_in_the_engines_words() -> None:
    with pytest.raises(KvplanError, match=r"llama\.cpp: deals out layers over GPUs"):
        predict(replace(_flags("llama.cpp", n_ctx=4096), tp=2, engine_args={"n_ctx": 4096, "n_ubatch": 512}))


@pytest.mark.parametrize(
    ("version", "stated", "engine", "note"),
    [
        ("0.19.1", None, "vllm@0.19.1", None),
        ("0.19.1", "0.33", "vllm@0.19.1", None),
        (None, "0.22", "vllm@0.22", None),
        (None, None, "vllm", "the log states no version; vllm 0.33 is assumed"),
        (
            "0.1.dev20073+g8e685d198",
            None,
            "vllm",
            "the log's version 0.1.dev20073+g8e685d198 names no release; vllm 0.33 is assumed",
        ),
        ("0.1.dev20073+g8e685d198", "0.31", "vllm@0.31", None),
    ],
)
def test_the_version_is_the_logs_the_users_or_the_newest(
    version: str | None, stated: str | None, engine: str, note: str | None
) -> None:
    scenario, notes = _scenario(Observed(engine="vllm", source="a.log", version=version), version=stated)

    assert scenario.engine == engine
    assert (note in notes) if note else not any("assumed" in n and "version" in n for n in notes)


def test_the_lines_of_the_old_core_are_those_of_an_old_release() -> None:
    observed = read("INFO 01-01 [executor_base.py:112] # cuda blocks: 3671, # CPU blocks: 2730")

    assert _scenario(observed)[0].engine == "vllm@0.7"


@pytest.mark.parametrize(
    ("ranks", "fields"),
    [
        (["Worker_TP0", "Worker_TP3"], {"tp": 4, "pp": 1}),
        (["Worker_PP0_TP1", "Worker_PP1_TP0"], {"tp": 2, "pp": 2}),
        (["EngineCore_0", "EngineCore_7"], {"dp": 8}),
        (["EngineCore_DP0"], {"tp": None, "dp": 1}),
    ],
)
def test_ranks_are_counted_where_flags_do_not_state_them(ranks: list[str], fields: dict[str, Any]) -> None:
    readings = tuple(Reading("available_kv_bytes", 2**30, rank=rank) for rank in ranks)
    scenario, notes = _scenario(Observed(engine="vllm", source="a.log", readings=readings))

    assert {name: getattr(scenario, name) for name in fields} == fields
    assert any("counted from the ranks that printed" in note for note in notes) is (len(ranks) > 1)


def test_what_flags_or_the_user_state_is_not_counted() -> None:
    readings = tuple(Reading("available_kv_bytes", 2**30, rank=f"Worker_TP{n}") for n in (0, 1))
    observed = Observed(engine="vllm", source="a.log", readings=readings)

    assert _scenario(observed, tp=8)[0].tp == 8
    assert _scenario(replace(observed, flags={"tensor_parallel_size": 4}))[0].tp == 4


def test_ranks_that_share_the_sequence_are_at_least_as_many_tensor_ranks() -> None:
    observed = Observed(engine="vllm", source="a.log", readings=(Reading("dcp_world_size", 8),))
    scenario, _ = scenario_of(observed, LATENT, BARE_GPU)

    assert (scenario.tp, scenario.dcp) == (8, 8)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("torch.float8_e4m3fn", "fp8"),
        ("torch.bfloat16", "bf16"),
        ("torch.float4_e2m1fn_x2", "nvfp4"),
        ("torch.int3", "auto"),
    ],
)
def test_pools_state_the_kv_dtype_that_flags_leave_to_the_engine(name: str, dtype: str) -> None:
    pool = Pool(kind="kv", line=1, slots=10, types={"k": name, "v": name})
    observed = Observed(engine="sglang", source="a.log", flags={"kv_cache_dtype": "auto"}, pools=(pool,))

    assert _scenario(observed)[0].kv_dtype == dtype


def test_llama_cpp_pools_state_sequences_streams_and_types() -> None:
    pools = (
        Pool(kind="full", line=1, slots=2048, sequences=4, streams=4, types={"k": "q8_0", "v": "f16"}),
        Pool(kind="full", line=2, slots=99, sequences=1, streams=1, context=1, types={"k": "f32", "v": "f32"}),
    )
    scenario, _ = _scenario(Observed(engine="llama.cpp", source="a.log", pools=pools))

    assert scenario.engine_args == {"type_k": "q8_0", "type_v": "fp16", "kv_unified": False, "n_ctx": 8192}
    assert (scenario.max_num_seqs, scenario.context) == (4, 2048)


def test_expert_parallelism_is_over_all_ranks() -> None:
    assert _flags("vllm", tensor_parallel_size=2, data_parallel_size=4, enable_expert_parallel=True).ep == 8


def test_an_engine_without_rules_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match=r"^a\.log: unknown engine 'lmdeploy'"):
        _scenario(Observed(engine="lmdeploy", source="a.log"))


def test_every_engine_whose_logs_are_read_has_flags() -> None:
    from kvplan.logs.reader import log_formats

    assert {log_format.engine for log_format in log_formats()} <= set(FLAGS)
