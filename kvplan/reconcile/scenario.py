"""From what a log says of its start to the question that kvplan answers: flags, ranks, version, cache types."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kvplan.engines import engine as find_engine
from kvplan.engines import engine_names
from kvplan.errors import KvplanError, UnknownName
from kvplan.identify import bundled
from kvplan.plan import Scenario
from kvplan.storage import kv_format

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec
    from kvplan.logs.observed import Observed
    from kvplan.model import ModelSpec

FLAGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        "tp": ("tensor_parallel_size",), "pp": ("pipeline_parallel_size",), "dp": ("data_parallel_size",),
        "dcp": ("decode_context_parallel_size",), "context": ("max_model_len", "max_seq_len"),
        "kv_dtype": ("kv_cache_dtype", "cache_dtype"), "gpu_memory_utilization": ("gpu_memory_utilization",),
        "block_size": ("block_size",), "max_num_seqs": ("max_num_seqs",),
        "max_num_batched_tokens": ("max_num_batched_tokens",),
    },
    "sglang": {
        "tp": ("tp_size",), "pp": ("pp_size",), "dp": ("dp_size",), "dcp": ("dcp_size",),
        "context": ("context_length",), "kv_dtype": ("kv_cache_dtype",),
        "gpu_memory_utilization": ("mem_fraction_static",), "block_size": ("page_size",),
        "max_num_seqs": ("max_running_requests",), "max_num_batched_tokens": ("chunked_prefill_size",),
    },
    "tensorrt-llm": {
        "tp": ("tensor_parallel_size", "tp_size"), "pp": ("pipeline_parallel_size", "pp_size"),
        "context": ("max_seq_len",), "kv_dtype": ("kv_cache_dtype", "dtype of kv_cache_config"),
        "gpu_memory_utilization": ("free_gpu_memory_fraction", "free_gpu_memory_fraction of kv_cache_config"),
        "block_size": ("tokens_per_block", "tokens_per_block of kv_cache_config"),
        "max_num_seqs": ("max_batch_size",), "max_num_batched_tokens": ("max_num_tokens",),
    },
    "llama.cpp": {
        "context": ("n_ctx_seq", "n_ctx_per_seq"), "max_num_seqs": ("n_seq_max", "n_parallel"),
        "max_num_batched_tokens": ("n_ubatch",),
    },
}  # fmt: skip
"""Fields of a scenario -> the engine's flags, those that were stated before those that it resolved."""
_CONTEXTS = ("concurrency_context_tokens", "needed_context_tokens", "context_len")
_CACHE_PARTS = ("k", "v", "latent")
_UNSAID = (None, -1, "auto", "", "None")
_MOST = 2**40
_TORCH_NAMES = {"float4_e2m1fn_x2": "nvfp4"}
_NO_RELEASE = re.compile(r"0\.1\.dev\d+.*")
"""What setuptools-scm calls a checkout without tags."""
_OVERRIDE = "num_gpu_blocks_override"
"""Left out, so that blocks are predicted from the memory; it is the cause of the difference."""
_RANK = re.compile(r"(TP|PP|DP)(\d+)|EngineCore_(\d+)")
_SAME_SPEC = "the model's own length is assumed; give --context"


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < _MOST else None


def _share(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value <= 1 else None


def _dtype(value: Any) -> str | None:
    text = str(value).removeprefix("torch.").lower()
    try:
        return kv_format(_TORCH_NAMES.get(text, text)).name
    except KvplanError:
        return None


_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tp", "pp", "dp", "dcp", "context"), _count),
    **dict.fromkeys(("block_size", "max_num_seqs", "max_num_batched_tokens"), _count),
    "kv_dtype": _dtype,
    "gpu_memory_utilization": _share,
}


def scenario_of(
    observed: Observed, model: ModelSpec, gpu: GpuSpec, unsaid: Mapping[str, Any] | None = None
) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario that a log's flags and facts describe, and notes on what was left out or taken for granted.

    `unsaid`: tp, context and version for where the log says nothing. `UnknownName` for an engine without rules.
    """
    if observed.engine not in FLAGS:
        raise UnknownName.of("engine", observed.engine, engine_names(), where=f"{observed.source}: ")
    notes: list[str] = []
    known = {name: value for name, value in (unsaid or {}).items() if value is not None}
    version = _version(observed, known.pop("version", None), notes)
    stated, facts = dict(_fields(observed, notes)), dict(_facts(observed))
    values = {**_ranks(observed, {*stated, *known}, notes), **known, **facts, **stated}
    if "context" in facts:  # the length that the engine computed its lines with
        values["context"] = facts["context"]
    args = dict(_arguments(observed, notes))
    _attention_dp(observed, values)
    if observed.engine == "llama.cpp":
        _llama_cpp(observed, values, args)
    if args.get("enable_expert_parallel") is True:
        values["ep"] = values.get("tp", 1) * values.get("dp", 1)
    if "context" not in values:
        notes.append(_SAME_SPEC)
    name = f"{observed.engine}@{version}" if version else observed.engine
    return Scenario(model=model, gpu=gpu, engine=name, engine_args=args, **values), tuple(notes)


def _flag(observed: Observed, name: str) -> Any:
    """A flag's value; `x of y` stands in the mapping y."""
    inner, _, outer = name.partition(" of ")
    holder = observed.flags.get(outer, {}) if outer else observed.flags
    return holder.get(inner) if isinstance(holder, Mapping) else None


def _fields(observed: Observed, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Fields of the scenario that flags state, the first flag that can be used."""
    for field, flags in FLAGS[observed.engine].items():
        for flag in flags:
            value = _flag(observed, flag)
            if value in _UNSAID:
                continue
            read = _READERS[field](value)
            if read is not None:
                yield field, read
                break
            notes.append(f"{flag}={value!r} is not used: kvplan does not know what it means")


def _arguments(observed: Observed, notes: list[str]) -> Iterator[tuple[str, Any]]:
    """Flags that the engine's rules know under its own names."""
    taken = {_OVERRIDE, "n_ctx", *(flag for flags in FLAGS[observed.engine].values() for flag in flags)}
    for flag, value in observed.flags.items():
        if value in _UNSAID or flag in taken or flag not in find_engine(observed.engine).args:
            continue
        if flag == "speculative_config":
            if speculation := _speculation(value, notes):
                yield flag, speculation
        elif observed.engine == "vllm" or _is_plain(flag, value):
            yield flag, value.removeprefix("torch.") if isinstance(value, str) else value
        else:
            notes.append(f"{flag}={value!r} is left out: kvplan does not know what it means")


def _is_plain(flag: str, value: Any) -> bool:
    """Whether a value is of the kind that its flag takes, for engines whose rules do not check it themselves."""
    if isinstance(value, str):
        return flag.endswith(("_backend", "_algorithm", "dtype"))
    return isinstance(value, (int, float)) and 0 <= value < _MOST


def _speculation(value: Any, notes: list[str]) -> dict[str, Any] | None:
    """`method` and `num_speculative_tokens`, as stated or as vLLM prints them back; a draft model that is bundled."""
    said = value if isinstance(value, Mapping) else {}
    tokens = _count(said.get("num_speculative_tokens")) or _count(said.get("num_spec_tokens"))
    if not isinstance(said.get("method"), str) or tokens is None:
        notes.append(f"speculative_config={value!r} is left out: it does not state method and num_speculative_tokens")
        return None
    of_its_own = isinstance(said.get("model"), str) and not said["method"].endswith("mtp")
    draft = bundled(said["model"]) if of_its_own else None
    return {"method": said["method"], "num_speculative_tokens": tokens, **({"model": draft} if draft else {})}


def _facts(observed: Observed) -> Iterator[tuple[str, Any]]:
    """What readings and pools state."""
    context = next((r for name in _CONTEXTS if (r := observed.first(name))), None)
    if context:
        yield "context", int(context.number)
    served = [pool.types for pool in observed.pools if pool.context == 0]
    packed = [reading.value for reading in observed.each("kv_cache_format")]
    stored = [name for types in served for part, name in types.items() if part in _CACHE_PARTS]
    dtypes = set(map(_dtype, stored or packed))
    if len(dtypes) == 1 and (dtype := dtypes.pop()):
        yield "kv_dtype", dtype
    block = observed.first("block_size") if observed.engine == "tensorrt-llm" else None
    if block:  # a setting there, not something that follows from the model
        yield "block_size", int(block.number)
    share = observed.first("gpu_memory_utilization") or observed.first("free_gpu_memory_fraction")
    if share and (fraction := _share(share.value)):
        yield "gpu_memory_utilization", fraction


def _ranks(observed: Observed, stated: Collection[str], notes: list[str]) -> dict[str, int]:
    """Ranks along each axis from the processes that printed, where nobody states them: rank 3 is one of at least 4."""
    found: dict[str, int] = {}
    labels = {reading.rank for reading in observed.readings} | {pool.rank for pool in observed.pools}
    for axis, number, core in (match.groups() for label in labels for match in _RANK.finditer(label)):
        name = (axis or "DP").lower()
        found[name] = max(found.get(name, 1), int(number or core) + 1)
    world = observed.first("dcp_world_size")
    if world:
        found["dcp"] = int(world.number)
        found["tp"] = max(found.get("tp", 1), found["dcp"])
    missing = {name: size for name, size in found.items() if size > 1 and name not in stated}
    if missing:
        said = ", ".join(f"{name} {size}" for name, size in sorted(missing.items()))
        notes.append(f"{said}: counted from the ranks that printed")
    return missing


def _version(observed: Observed, stated: str | None, notes: list[str]) -> str | None:
    """The log's version, the user's, or one that the log's lines belong to. Only vLLM's rules differ by release."""
    if observed.version and not _NO_RELEASE.fullmatch(observed.version):
        return observed.version
    if stated:
        return stated
    if observed.engine != "vllm":
        return None
    of_v0 = observed.first("engine_core") or observed.first("num_cpu_blocks")
    assumed = "0.7" if of_v0 and of_v0.value != "V1" else None
    said = f"the log's version {observed.version} names no release" if observed.version else "the log states no version"
    notes.append(f"{said}; {observed.engine} {assumed or find_engine(observed.engine).default_version} is assumed")
    return assumed


def _attention_dp(observed: Observed, values: dict[str, Any]) -> None:
    """SGLang's tp_size counts the groups of data-parallel attention; TensorRT-LLM's does too."""
    dp, tp = values.get("dp", 1), values.get("tp", 1)
    shared = observed.flags.get("enable_dp_attention") or "dp_size" not in observed.flags
    if observed.engine == "sglang" and dp > 1 and shared:
        values["tp"] = max(1, tp // dp)
    if observed.engine == "tensorrt-llm" and observed.flags.get("enable_attention_dp") is True:
        values["dp"], values["tp"] = tp, 1


def _llama_cpp(observed: Observed, values: dict[str, Any], args: dict[str, Any]) -> None:
    """Sequences and streams as the pools print them; K and V types apart; the context of all sequences together."""
    values.pop("kv_dtype", None)
    served = [pool for pool in observed.pools if pool.context == 0]
    for pool in served:
        for part, arg in (("k", "type_k"), ("latent", "type_k"), ("v", "type_v")):
            if _dtype(pool.types.get(part)):
                args[arg] = _dtype(pool.types[part])
        if pool.sequences and pool.kind != "state":
            values.setdefault("max_num_seqs", pool.sequences)
            args.setdefault("kv_unified", pool.streams == 1 and pool.sequences > 1)
    sequences = values.get("max_num_seqs", 1)
    whole = next((pool for pool in served if pool.kind in {"kv", "full"} and pool.slots), None)
    total = _count(observed.flags.get("n_ctx")) or (whole and (whole.slots or 0) * (whole.streams or 1))
    if total:
        args["n_ctx"] = total
        values.setdefault("context", total if args.get("kv_unified") else total // sequences)
