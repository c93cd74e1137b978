"""Whether one session fits, in vLLM's own words, and the search for the longest that does."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.units import GIB

NO_MEMORY = (
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine "
    "(this flag also controls CPU memory reservation on the CPU backend, despite its name)."
)


def last_true(holds: Callable[[int], bool], most: int) -> int:
    """The largest n from 1 to `most` for which a falling predicate holds; 0 where it never does."""
    if most > 0 and holds(most):
        return most
    low, high = 0, max(most - 1, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def does_not_fit(length: int, needed_bytes: int, available_bytes: int, estimate_tokens: int) -> str:
    """What vLLM raises where one session of `length` tokens needs more than the pool has."""
    hint = (
        f"Based on the available memory, the estimated maximum model length is {estimate_tokens}. "
        if estimate_tokens > 0
        else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({length}), ({_gib(needed_bytes)} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({_gib(available_bytes)} GiB). {hint}"
        "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing "
        "`max_model_len` when initializing the engine."
    )


def exceeds_tokens(length: int, stored_tokens: int) -> str:
    """What the V0 engine raises in the same case (`raise_if_cache_size_invalid`)."""
    return (
        f"The model's max seq len ({length}) is larger than the maximum number of tokens that can be stored in KV "
        f"cache ({stored_tokens}). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
        "initializing the engine."
    )


def _gib(size_bytes: int) -> float:
    return round(size_bytes / GIB, 2)
