"""What vLLM prints when it starts: V0 (0.6 to 0.8), V1 (0.7 to 0.33), and the forks that kept these lines.

Sizes are GiB whatever they are called: `Loading model weights took 14.96 GB` divides by 2**30 too. The forms were read
in the wheels 0.6.6, 0.8.5, 0.10.2, 0.11.2, 0.13.0, 0.16.0, 0.19.1, 0.22.1, 0.25.1, 0.28.0 and 0.30.0 to 0.33.0, and in
logs that users pasted into public issues.
"""

from __future__ import annotations

from kvplan.logs.base import LogFormat
from kvplan.logs.patterns import Pattern

_ARGUMENTS = (
    Pattern(b"version", "vLLM API server version <version:word>", phase="start"),
    Pattern(b"version", "█ version <version:word>"),
    Pattern(b"LLM engine (v", "Initializing an LLM engine (v<version:word>)", phase="start"),
    Pattern(b"LLM engine (v", "Initializing a <engine_core:core> LLM engine (v<version:word>)", phase="start"),
    Pattern(b"LLM engine (v", "LLM engine (v...) with config: ", kind="resolved"),
    Pattern(b"args", "non-default args: {", kind="stated", phase="start"),
    Pattern(b"args", "args: Namespace(", kind="stated", phase="start"),
    Pattern(
        b"_tokens=",
        "Chunked prefill is enabled with max_num_batched_tokens=<max_num_batched_tokens:count>",
        kind="flags",
    ),
    Pattern(
        b"iB",
        "Auto-fit max_model_len: reduced from <derived_max_model_len:count> to <max_model_len:count> to fit",
        kind="flags",
    ),
    Pattern(b"Using ", "Using <attention_backend:word> attention backend"),
)

_WEIGHTS = (
    Pattern(b"iB", "Model loading took <weights:gib> GiB", phase="load"),
    Pattern(b"GB", "Loading model weights took <weights:gib> GB", phase="load"),
)

_V0_MEMORY = (
    Pattern(
        b"iB",
        "Memory profiling results: total_gpu_memory=<gpu_total:gib>GiB ...non_torch_memory=<non_torch:gib>GiB "
        "kv_cache_size=<available_kv:gib>GiB gpu_memory_utilization=<gpu_memory_utilization:number>",
    ),
    Pattern(
        b"iB",
        "total_gpu_memory (<gpu_total:gib>GiB) x gpu_memory_utilization (<gpu_memory_utilization:number>) "
        "= <requested:gib>GiB",
    ),
    Pattern(
        b"iB",
        "model weights take <weights:gib>GiB; non_torch_memory takes <non_torch:gib>GiB; "
        "PyTorch activation peak memory takes <activation:gib>GiB; "
        "the rest of the memory reserved for KV Cache is <available_kv:gib>GiB",
    ),
    Pattern(b"block", "# GPU blocks: <num_gpu_blocks:count>", phase="pool"),
    Pattern(
        b"block",
        "# <block_device:word> blocks: <num_gpu_blocks:count>, # CPU blocks: <num_cpu_blocks:count>",
        phase="pool",
    ),
    Pattern(
        b"utilization",
        "model's max seq len (<needed_context_tokens:count>) is larger than the maximum number of tokens "
        "that can be stored in KV cache (<kv_tokens:count>)",
    ),
)

_V1_MEMORY = (
    Pattern(b"iB", "Available KV cache memory: <available_kv:gib> GiB"),
    Pattern(
        b"iB",
        "Initial free memory <free:gib> GiB, reserved <available_kv:gib> GiB memory for KV Cache as specified by "
        "kv_cache_memory_bytes",
    ),
    Pattern(
        b"iB",
        "Initial free memory: <free:gib> GiB; Requested memory: <gpu_memory_utilization:number> (util), "
        "<requested:gib> GiB",
    ),
    Pattern(b"iB", "Free memory after profiling: <free_after_profile:gib> GiB (total)"),
    Pattern(
        b"iB",
        "Total non KV cache memory: <non_kv:gib>GiB; torch peak memory increase: <activation:gib>GiB; "
        "non-torch forward increase memory: <non_torch:gib>GiB; weights memory: <weights:gib>GiB",
    ),
)

_POOL = (
    Pattern(b"KV cache size", "KV cache size: <kv_tokens:count> tokens", phase="pool", repeats="least"),
    Pattern(
        b"concurrency for",
        "Maximum concurrency for <concurrency_context_tokens:count> tokens per request: <max_concurrency:number>x",
        repeats="least",
    ),
    Pattern(b"KV cache size", "Multiplying the GPU KV cache size by the dcp_world_size <dcp_world_size:count>."),
    Pattern(
        b"KV cache size",
        "Multiplying the GPU KV cache size by the cp_world_size <cp_world_size:count> "
        "(pcp_world_size <pcp_world_size:count> * dcp_world_size <dcp_world_size:count>)",
    ),
    Pattern(
        b"block",
        "Overriding num_gpu_blocks=<profiled_num_gpu_blocks:count> with num_gpu_blocks_override=<num_gpu_blocks:count>",
    ),
    Pattern(b"block", "num_gpu_blocks is: <num_gpu_blocks:count>", phase="pool"),
)

_LAYOUT = (
    Pattern(b"block", "Setting attention block size to <attention_block_size:count> tokens"),
    Pattern(b"block", "Setting kv cache block size to <kv_cache_block_size:count> for <kv_cache_backend:word> backend"),
    Pattern(b"block", "kv lcm block sizes <kv_lcm_block_size:count>"),
    Pattern(b"group sizes", "kv cache group sizes [<kv_cache_group_sizes:list>]"),
    Pattern(b"group sizes", "kv cache group sizes (<kv_cache_group_sizes:list>)"),
    Pattern(b"group sizes", "kv cache group sizes (<kv_cache_group_sizes:list>,)"),
    Pattern(b"adding ", "Padding mamba page size by <mamba_page_padding_percent:number>%"),
    Pattern(
        b"adding ",
        "Add <padding_layers:count> padding layers, may waste at most <padding_waste_percent:number>%",
    ),
    Pattern(b"Using ", "Using <kv_cache_layout:word> KV cache layout"),
    Pattern(b"Using ", "Using DeepSeek's <kv_cache_format:word> KV cache format"),
)

_GRAPHS = (
    Pattern(b"iB", "Estimated CUDA graph memory: <graph_estimate:gib> GiB total"),
    Pattern(b"iB", "Graph capturing finished in ...took <graph:gib> GiB"),
    Pattern(b"iB", "CUDA graph pool memory: <graph:gib> GiB (actual), <graph_estimate:gib> GiB (estimated)"),
    Pattern(b"utilization", "CUDA graph memory profiling is <graph_memory_profiling:word> ("),
    Pattern(
        b"utilization",
        "The current --gpu-memory-utilization=<gpu_memory_utilization:number> is equivalent to "
        "--gpu-memory-utilization=<equivalent_gpu_memory_utilization:number> without",
    ),
)

_LEDGER = (
    Pattern(b"iB", "Free memory on device ...(<free:gib>/<gpu_total:gib> GiB) on startup"),
    Pattern(b"iB", "GPU memory utilization ...(<gpu_memory_utilization:number>, <requested:gib> GiB)"),
    Pattern(
        b"iB",
        "Actual usage is <weights:gib> GiB for weight, <activation:gib> GiB for peak activation, "
        "<non_torch:gib> GiB for non-torch memory, and <graph:gib> GiB for CUDAGraph memory",
    ),
    Pattern(
        b"iB",
        "Actual usage is <consumed:gib> GiB for consumed memory (weights + non-torch), "
        "<activation:gib> GiB for peak activation, and <graph:gib> GiB for CUDAGraph memory",
    ),
    Pattern(b"iB", "config with `--kv-cache-memory=<suggested_kv:bytes>`"),
    Pattern(b"iB", "or `--kv-cache-memory=<suggested_full_kv:bytes>`"),
    Pattern(b"iB", "Current kv cache memory in use is <available_kv:gib> GiB"),
    Pattern(b"iB", "Current kv cache memory in use is <available_kv:bytes> bytes"),
)

_REFUSED = "To serve at least one request with the ..."
_REFUSALS = (
    Pattern(
        b"iB",
        f"{_REFUSED}max seq len (<needed_context_tokens:count>), (<needed_kv:gib> GiB KV cache is needed, "
        "which is larger than the available KV cache memory (<available_kv:gib> GiB)",
    ),
    Pattern(b"iB", f"{_REFUSED}estimated maximum model length is <estimated_max_model_len:count>."),
    Pattern(b"block", "No available memory for the cache blocks", kind="note"),
)

LOG_FORMAT = LogFormat(
    engine="vllm",
    patterns=(
        *_ARGUMENTS, *_WEIGHTS, *_V0_MEMORY, *_V1_MEMORY, *_POOL, *_LAYOUT, *_GRAPHS, *_LEDGER, *_REFUSALS,
    ),
    model_keys=("model", "model_tag"),
)  # fmt: skip
