"""vLLM's own flags that decide how the cache is planned, read from `engine_args` and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from kvplan.errors import BadInput, UnknownName
from kvplan.model import ModelSpec

WITHOUT_LAYERS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator", "custom_class"})
"""Ways to speculate whose proposer keeps no KV cache."""
NO_EFFECT = frozenset({
    "enable_expert_parallel", "enforce_eager", "gpu_memory_utilization", "kv_cache_memory_bytes", "load_format",
    "tokenizer", "trust_remote_code", "served_model_name", "seed", "swap_space", "enable_chunked_prefill",
    "distributed_executor_backend", "kv_offloading_size", "kv_offloading_backend", "limit_mm_per_prompt",
    "reasoning_parser", "tool_call_parser", "enable_auto_tool_choice", "quantization", "enable_lora", "max_loras",
    "max_lora_rank", "compilation_config", "cuda_graph_sizes", "max_logprobs", "enable_log_requests",
})  # fmt: skip
"""Flags that people pass and that leave the cut of the cache alone (some move the budget)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """`--speculative-config`: the method, how many tokens it drafts, and the draft model where it is known."""

    method: str
    num_speculative_tokens: int
    draft: ModelSpec | None = None

    @property
    def keeps_cache(self) -> bool:
        """Whether the drafter has layers of its own in the pool."""
        return self.method not in WITHOUT_LAYERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """The flags, under vLLM's names; None where the engine decides. `usage`: `vllm serve`, or the LLM class."""

    usage: Literal["server", "llm"] = "server"
    dtype: str = "auto"
    enable_prefix_caching: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    num_gpu_blocks_override: int | None = None
    attention_backend: str | None = None
    async_scheduling: bool | None = None
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    mamba_cache_mode: str | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_block_size: int | None = None
    performance_mode: str = "balanced"
    speculative_config: Speculation | None = None


DEFAULTS = Args()


def read_args(given: Mapping[str, Any]) -> Args:
    """`Args` from a mapping of flags (dashes and underscores are the same); a flag that nobody knows is an error."""
    if not given:
        return DEFAULTS
    values = {}
    for key, value in given.items():
        name = key.replace("-", "_").removeprefix("__")
        if name in _READERS and value is not None:
            values[name] = _READERS[name](name, value)
        elif name not in _READERS and name not in NO_EFFECT:
            raise UnknownName.of("vLLM flag", key, [*_READERS, *NO_EFFECT], where="engine_args: ")
    return Args(**values)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"engine_args.{name}: {value!r} is not true or false")
    return value


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"engine_args.{name}: {value!r} is not a whole number above 0")
    return value


def _one_of(*choices: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if value not in choices:
            raise BadInput(f"engine_args.{name}: {value!r} is not one of {', '.join(choices)}")
        return str(value)

    return read


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(f"engine_args.{name}: {value!r} is not a name")
    return value


def _backend(name: str, value: Any) -> str:
    return _text(name, value).upper()


def _layers(name: str, value: Any) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(v, str | int) for v in listed):
        raise BadInput(f"engine_args.{name}: {value!r} is not a list of layer indices or `sliding_window`")
    return tuple(str(v).strip() for v in listed)


def _speculation(name: str, value: Any) -> Speculation:
    if not isinstance(value, Mapping) or not isinstance(value.get("method"), str):
        raise BadInput(f"engine_args.{name}: {value!r} is not a mapping with `method` and `num_speculative_tokens`")
    tokens = _count(f"{name}.num_speculative_tokens", value.get("num_speculative_tokens"))
    draft = value.get("model")
    return Speculation(
        method=value["method"],
        num_speculative_tokens=tokens,
        draft=draft if isinstance(draft, ModelSpec) else None,
    )


_DTYPES = ("auto", "bfloat16", "float16", "half", "float32", "float")
_READERS: dict[str, Callable[[str, Any], Any]] = {
    "usage": _one_of("server", "llm"),
    "dtype": _one_of(*_DTYPES),
    "enable_prefix_caching": _flag,
    "disable_hybrid_kv_cache_manager": _flag,
    "num_gpu_blocks_override": _count,
    "attention_backend": _backend,
    "async_scheduling": _flag,
    "kv_cache_dtype_skip_layers": _layers,
    "mamba_cache_mode": _one_of("none", "align", "all"),
    "mamba_cache_dtype": _one_of("auto", "float16", "float32", "bfloat16"),
    "mamba_ssm_cache_dtype": _one_of("auto", "float16", "float32", "bfloat16"),
    "mamba_block_size": _count,
    "performance_mode": _one_of("balanced", "interactivity", "throughput"),
    "speculative_config": _speculation,
}


def arg_names() -> frozenset[str]:
    """Every flag that the planning reads."""
    return frozenset(f.name for f in fields(Args))
