"""Each known cause of a memory line or a pool that differs, on a log that shows it and on one that does not.

GROUPED on one rank of the bare GPU (80 GiB, vLLM 0.19, utilization 0.9): 72 GiB requested, about 13 GiB of weights.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.causes import UNEXPLAINED
from kvplan.logs import Observed
from kvplan.model import OtherWeight, Quantization
from kvplan.parallel import Parallelism
from kvplan.reconcile import Comparison
from kvplan.units import GIB
from kvplan.weights import rank_bytes
from tests.small import GROUPED
from tests.startups import UNIFIED_GPU, held, ledger, pool, read, vllm

ONE = {"tensor_parallel_size": 1, "gpu_memory_utilization": 0.9}
WEIGHTS = rank_bytes(GROUPED, Parallelism()) / GIB
FP8 = replace(GROUPED, quantization=Quantization(quant_method="fp8", weight_format="fp8"))


def _loaded(gib: float, **flags: object) -> Observed:
    return vllm(f"Model loading took {gib:.4f} GiB memory and 9.0 seconds", **{**ONE, **flags})


@pytest.mark.parametrize(
    ("share", "cause"),
    [
        (0.5, "weights in 8 bits explain it: a quantized copy"),
        (0.28, "weights in 4 bits explain it: a quantized copy"),
        (0.7, UNEXPLAINED),
    ],
)
def test_weights_of_a_quantized_copy(share: float, cause: str) -> None:
    assert held(_loaded(WEIGHTS * share + (1 - share) * 0.25))["weights_bytes"].cause == cause


def test_weights_that_were_not_quantized_after_all() -> None:
    assert held(_loaded(WEIGHTS), FP8)["weights_bytes"].cause.startswith("weights in bfloat16 explain it")
    assert held(_loaded(2 * WEIGHTS), FP8)["weights_bytes"].cause == UNEXPLAINED


@pytest.mark.parametrize(
    ("config", "more", "cause"),
    [
        ({"method": "eagle3", "num_speculative_tokens": 3}, 1.0, "eagle3 drafts: 1.00 GiB of weights are its own"),
        ({"method": "eagle3", "num_speculative_tokens": 3}, -1.0, UNEXPLAINED),
        (None, 1.0, UNEXPLAINED),
    ],
    ids=["a drafter", "less", "no drafter"],
)
def test_weights_of_a_drafter(config: object, more: float, cause: str) -> None:
    assert held(_loaded(WEIGHTS + more, speculative_config=config))["weights_bytes"].cause == cause


def _closing(left: float, *, version: str = "0.19.0", graphs: float = 1.5) -> Comparison:
    """The ledger 72 - 13 - 2 - 1 = 56 GiB, with `left` printed as the pool."""
    estimate = f"Estimated CUDA graph memory: {graphs:.2f} GiB total"
    lines = (estimate, *ledger("72.00", "13.00", "2.00", "1.00"), pool(f"{left:.2f}"))
    return held(vllm(*lines, version=version, **ONE))["ledger_kv_bytes"]


@pytest.mark.parametrize(
    ("version", "left", "cause"),
    [
        ("0.19.0", 56.0, ""),
        ("0.19.0", 54.5, "the estimate of CUDA graphs, 1.50 GiB, was taken off the pool"),
        ("0.22.0", 54.5, ""),
        ("0.22.0", 56.0, "the estimate of CUDA graphs, 1.50 GiB, was not taken off the pool"),
        ("0.22.0", 50.0, UNEXPLAINED),
    ],
)
def test_the_estimate_of_graphs_is_taken_off_or_not(version: str, left: float, cause: str) -> None:
    assert _closing(left, version=version).cause == cause


def test_a_pool_follows_from_the_lines_above_it() -> None:
    """7 GiB more of activations than estimated are 7 GiB less of pool."""
    found = held(vllm(*ledger("72.00", f"{WEIGHTS:.2f}", "9.00", "0.25"), pool(f"{72 - WEIGHTS - 9.25:.2f}"), **ONE))

    assert found["available_kv_bytes"].cause.startswith("follows from activation: 9.00 GiB against ")
    assert found["activation_bytes"].cause == UNEXPLAINED


def test_a_pool_that_its_lines_do_not_leave_does_not_follow_from_them() -> None:
    found = held(vllm(*ledger("72.00", f"{WEIGHTS:.2f}", "2.00", "0.25"), pool("30.00"), **ONE))

    assert found["available_kv_bytes"].cause == UNEXPLAINED
    assert found["ledger_kv_bytes"].cause == UNEXPLAINED


def _started(free: float, left: float) -> dict[str, Comparison]:
    lines = (f"Initial free memory: {free:.2f} GiB; Requested memory: 0.9 (util), 72.00 GiB", pool(f"{left:.2f}"))
    return held(vllm(*lines, **ONE))


def test_another_process_takes_its_memory_off_the_pool() -> None:
    found = _started(free=60.0, left=36.5)

    assert found["free_bytes"].cause.startswith("20.00 GiB were taken before this process started")
    assert found["available_kv_bytes"].cause == found["free_bytes"].cause


def test_memory_taken_before_the_start_is_no_cause_of_another_gap() -> None:
    found = _started(free=60.0, left=5.0)

    assert "20.00 GiB" in found["free_bytes"].cause
    assert found["available_kv_bytes"].cause == UNEXPLAINED
    assert _started(free=79.4, left=36.5)["available_kv_bytes"].cause == UNEXPLAINED


def test_unified_memory_is_shared_with_the_system() -> None:
    lines = (*ledger("72.00", f"{WEIGHTS:.2f}", "1.00", "30.00"), pool(f"{72 - WEIGHTS - 31:.2f}"))

    assert "unified memory" in held(vllm(*lines, **ONE), gpu=UNIFIED_GPU)["non_torch_bytes"].cause
    assert held(vllm(*lines, **ONE))["non_torch_bytes"].cause == UNEXPLAINED


def test_a_memory_fraction_that_the_log_does_not_state() -> None:
    unsaid = held(vllm(pool("40.00"), tensor_parallel_size=1))["available_kv_bytes"].cause

    assert unsaid.startswith("the log does not state gpu_memory_utilization; 0.")
    assert held(vllm(pool("40.00"), **ONE))["available_kv_bytes"].cause == UNEXPLAINED


ENCODER = replace(GROUPED, other_weights=(OtherWeight(part="vision", numel=GIB),))


def test_an_encoder_that_was_not_loaded() -> None:
    whole = rank_bytes(ENCODER, Parallelism()) / GIB

    assert held(_loaded(whole - 2), ENCODER)["weights_bytes"].cause == "the encoder's 2.00 GiB were not loaded"
    assert held(_loaded(whole - 4), ENCODER)["weights_bytes"].cause == UNEXPLAINED


def test_an_encoder_encodes_its_largest_input_in_the_profile_run() -> None:
    lines = (*ledger("72.00", f"{WEIGHTS:.2f}", "7.00", "0.25"), pool("50.00"))

    assert "profile run encodes its largest input" in held(vllm(*lines, **ONE), ENCODER)["activation_bytes"].cause
    assert held(vllm(*lines, **ONE))["activation_bytes"].cause == UNEXPLAINED


def test_sglang_states_no_fraction() -> None:
    observed = read(
        "[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=79.50 GB",
        f"[2026-01-01 00:00:00 TP0] Load weight end. avail mem={79.5 - WEIGHTS:.2f} GB, mem usage={WEIGHTS:.2f} GB.",
        "[2026-01-01 00:00:00 TP0] KV Cache is allocated. #tokens: 245759, K size: 15.00 GB, V size: 15.00 GB",
    )
    cause = held(observed)["kv_pool_bytes"].cause

    assert cause.startswith("the log does not state mem_fraction_static; 0.")
