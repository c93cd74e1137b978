"""The page of docs/reference on engines: their flags, memory fractions, and what changed between vLLM releases."""

from __future__ import annotations

from benchmarks.markdown import joined, table
from kvplan.engines import engine, engine_names
from kvplan.engines.vllm.versions import CHANGES

MEMORY_FRACTIONS = (
    ("vllm", "`gpu_memory_utilization`", "0.9, since 0.20 0.92", "the total", "inside", "inside; graphs since 0.21"),
    (
        "sglang",
        "`mem_fraction_static`",
        "by GPU and batch",
        "what is free before loading",
        "inside",
        "in the rest beside it",
    ),
    ("tensorrt-llm", "`free_gpu_memory_fraction`", "0.9", "total less the profiled peak", "in the peak", "in the peak"),
    ("llama.cpp", "none", "`--fit-target` leaves 1 GiB", "the device", "beside", "a compute buffer beside"),
    ("transformers", "none", "", "the device", "beside", "beside"),
)
"""Engine, name of the fraction, default, what it is a fraction of, where weights and activations stand."""


def engines() -> str:
    """Engines, their flags, and what changed from one vLLM release to the next."""
    found = [engine(name) for name in engine_names()]
    rows = ((f"`{e.name}`", e.default_version, ", ".join(f"`{arg}`" for arg in sorted(e.args))) for e in found)
    changes = ((c.since, IN_WORDS.get(c.rule, c.rule.replace("_", " ")), _value(c.value), c.absent_in) for c in CHANGES)
    return joined(
        "# Engines",
        "`--engine NAME` or `--engine NAME@VERSION`. Each is one module of `kvplan/engines`; how each reserves memory "
        "is in [the explanation](../explanation.md#reserved-bytes-what-the-engine-takes).",
        table(("engine", "version unless one is given", "flags that `--engine-arg name=value` takes"), rows),
        "## What a memory fraction means",
        table(("engine", "name", "default", "fraction of", "weights", "activations, graphs"), MEMORY_FRACTIONS),
        "## vLLM by release",
        "A rule holds from the release on; the last column is the newest wheel, read line by line, that lacks it.",
        table(("since", "rule", "value", "absent in"), changes),
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "no limit" if value is None else str(value)


IN_WORDS = {
    "mla_cache": "what an MLA layer keeps of a token",
    "engine_core": "engine core",
    "block_size_from": "where the default block size comes from",
    "hybrid_groups": "windows and states have groups of their own",
    "printed_tokens": "what the token line counts",
    "concurrency": "what concurrency is a quotient of",
    "a100_small_batch": "an A100 gets the batch defaults of small GPUs",
    "sequence_ranks": "what decode context parallelism divides",
    "groups_over_stages": "groups are formed over all pipeline stages together",
    "mixed_pages_in_one_group": "layers of one kind share a group though their pages differ in bytes",
    "scales_small_pages": "smaller pages take more tokens, to equal the largest",
    "pads_attention_pages": "attention pages are padded where tokens do not divide",
    "group_padding": "groups take the size of the commonest kind if that is below so many times the rarest",
    "expert_chunk_tokens": "tokens that fused experts take at once",
    "keeps_expert_workspace": "the experts' workspace stays through the whole profile run",
    "top_p": "how the sampler's warm-up cuts the vocabulary",
    "nemotron_fp32_state": "Nemotron-H keeps its states in fp32 unless the config says otherwise",
    "qwen35_fp32_state": "Qwen3.5 keeps its states in the dtype of its config",
    "chunked_groups": "chunked attention keeps its chunk alone",
    "modelopt_kv_dtype": "`auto` follows the KV scheme of ModelOpt checkpoints",
    "fit_check": "what the start-up check sums",
    "mamba_align": "prefix caching of states, mode `align`",
    "mamba_all": "prefix caching of states, mode `all`",
    "large_mla_pages": "block that MLA kernels on SM 10 force",
    "gpu_memory_utilization": "default `gpu_memory_utilization`",
    "hybrid_mla_block": "steps in which the block of MLA beside states grows",
    "packing": "how DeepSeek-V4's layers share a block",
    "packed_fit": "what the start-up check counts of them",
    "full_group_first": "the group of full attention comes first among them",
    "cuda_graphs_deducted": "estimated CUDA graphs are taken off the pool",
    "sliding_block_of_its_own": "a sliding layer keeps the block size of its own kernel",
    "skip_layers_align": "blocks grow until pages of quantized layers hold those of unquantized ones",
    "hybrid_prefix_caching": "prefix caching of hybrids is on by default",
    "batches_in_flight": "windows are charged with the tokens of all batches in flight",
    "async_pipeline": "asynchronous scheduling over pipeline stages",
    "async_ngram": "asynchronous scheduling with n-gram speculation",
    "batch_by_160_gib": "GPUs of 160 GiB and more get larger batch defaults",
    "retains_for_mtp": "windows keep the tokens that multi-token prediction still reads",
    "null_block_in_fit": "the start-up check leaves one block out",
    "one_kv_layout": "the attention backends of one model must share a layout of the cache",
    "refines_fp8_experts": "block-scaled FP8 experts may be cut finer than their blocks",
    "mamba2_checkpoint": "Mamba-2 keeps one state more, for prefill",
    "gdn_checkpoint": "Gated DeltaNet keeps one state more where FlashInfer runs its prefill",
    "glm_dsa_fp8_on_sm100": "GLM's sparse MLA on SM 10 turns `auto` into fp8",
    "gb10_small_batch": "a GB10 gets the batch defaults of small GPUs",
}
"""vLLM's rules by name (`kvplan.engines.vllm.versions.Rules`)."""
