"""What vLLM refuses before it plans a cache, in its own words."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TYPE_CHECKING

from kvplan.arith import round_up
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import GatedDeltaNet, KimiDeltaAttention, LightningAttention
from kvplan.attention.mamba import Mamba1, Mamba2, ShortConv
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.vllm.mixers import is_state, window_of
from kvplan.engines.vllm.served import WITHOUT_COPIES, WITHOUT_STAGES, unserved
from kvplan.errors import Unsupported
from kvplan.mlp import DenseMlp, MoeMlp

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.engines.vllm.formats import KvDtype
    from kvplan.engines.vllm.versions import Rules
    from kvplan.model import LayerGroup, ModelSpec
    from kvplan.parallel import Parallelism

_NO_SCALES = frozenset({"recurrent", "compressed", "none"})
_VOCAB_PADDING, _LEAST_FP8_BLOCK = 64, 32


def check(spec: ModelSpec, parallel: Parallelism, kv: KvDtype, rules: Rules) -> None:
    """Raise `Unsupported` with the first reason that vLLM would give."""
    reason = next(_reasons(spec, parallel, kv, rules), None)
    if reason is not None:
        raise Unsupported(reason)


def _reasons(spec: ModelSpec, parallel: Parallelism, kv: KvDtype, rules: Rules) -> Iterator[str]:
    yield from unserved(spec, rules)
    tp = parallel.tp
    attentions = [a for _, a in spec.mixers()]
    heads = next((a.num_attention_heads for a in attentions if hasattr(a, "num_attention_heads")), 0)
    if heads % tp:
        yield f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({tp})."
    if kv.name.startswith("nvfp4") and kv.name != "nvfp4_ds_mla" and any(a.family == "mla" for a in attentions):
        yield (
            "nvfp4 KV cache is not supported with MLA (Multi-head Latent Attention) backends. Please use a different "
            "--kv-cache-dtype (e.g., 'fp8', 'auto', or 'nvfp4_ds_mla' with a sparse MLA backend) for MLA models such "
            "as DeepSeek."
        )
    if kv.name == "fp8_e5m2" and _loads_kv_scales(spec) and any(a.family not in _NO_SCALES for a in attentions):
        yield "fp8_e5m2 kv-cache is not supported with fp8 checkpoints."
    if parallel.pp > 1 and spec.architecture in WITHOUT_STAGES:
        yield "Pipeline parallelism is not supported for this model."
    fewest = min((a.num_key_value_heads for a in attentions if isinstance(a, GroupedQueryAttention)), default=tp)
    if fewest < tp and spec.model_type in WITHOUT_COPIES:
        yield f"vLLM: {spec.model_type} copies no KV heads: tensor parallel size {tp} is more than its {fewest}"
    if parallel.dcp > 1:
        yield from _divided_sequence(attentions, parallel, rules)
    padded = round_up(spec.vocab_size, _VOCAB_PADDING)
    if padded % tp:
        yield f"{padded} is not divisible by {tp}"
    for group in spec.layer_groups:
        yield from _layer(group, parallel)
        yield from _fp8_blocks(spec, group, parallel, rules)


def _loads_kv_scales(spec: ModelSpec) -> bool:
    """Whether the checkpoint's quantization brings scales for KV, which only e4m3 can use."""
    q = spec.quantization
    if q is None:
        return False
    stated = q.quant_method == "compressed-tensors" and q.kv_cache_dtype not in {None, "none"}
    return stated or q.quant_method == "fp8" or q.quant_method.startswith("modelopt")


def _divided_sequence(attentions: list[Attention], parallel: Parallelism, rules: Rules) -> Iterator[str]:
    """Decode context parallelism shares the ranks that would only copy KV heads; windows cannot be divided."""
    if rules.sequence_ranks == "none":
        yield f"vLLM {rules.version}: has no decode context parallelism"
    if any(window_of(a) or a.family == "compressed" for a in attentions):
        yield "DCP not support sliding window."
    if any(a.layer_type == "chunked_attention" for a in attentions):
        yield "DCP not support chunked local attn now."
    if any(is_state(a) for a in attentions) and rules.sequence_ranks == "attention":
        yield "DCP not support mamba now."
    if all(is_state(a) for a in attentions):
        yield "vLLM: decode context parallelism needs layers of attention"
    for attention in attentions:
        if isinstance(attention, GroupedQueryAttention):
            yield from _copied_heads(attention, parallel.tp, parallel.dcp)


def _copied_heads(attention: GroupedQueryAttention, tp: int, dcp: int) -> Iterator[str]:
    kv_heads = attention.num_key_value_heads
    if tp <= kv_heads:
        yield (
            f"Decode context parallelism for GQA/MQA requires `--tensor-parallel-size` ({tp}) to be greater than the "
            f"model's total number of KV heads ({kv_heads}). Increase `--tensor-parallel-size` or set "
            "`--decode-context-parallel-size 1`."
        )
    elif dcp > tp // kv_heads:
        yield (
            f"`--decode-context-parallel-size` ({dcp}) exceeds the maximum supported value ({tp // kv_heads}) for "
            f"`--tensor-parallel-size` ({tp}) and {kv_heads} model KV heads."
        )
        return
    per_head = attention.num_attention_heads // kv_heads
    if per_head % dcp:
        yield (
            f"The model's number of query heads per KV head ({per_head}) must be divisible by "
            f"`--decode-context-parallel-size` ({dcp}) for GQA/MQA."
        )


def _layer(group: LayerGroup, parallel: Parallelism) -> Iterator[str]:
    for attention in group.attention:
        yield from _shared_out(attention, parallel.tp)
    mlp = group.mlp
    if isinstance(mlp, DenseMlp) and mlp.intermediate_size % parallel.tp:
        yield f"{mlp.intermediate_size} is not divisible by {parallel.tp}"
    if isinstance(mlp, MoeMlp) and parallel.ep == 1 and mlp.moe_intermediate_size % parallel.tp:
        yield f"moe_intermediate_size {mlp.moe_intermediate_size} is not divisible by {parallel.tp}"


def _shared_out(attention: Attention, tp: int) -> Iterator[str]:
    """Heads, channels and groups that every rank must get a whole number of."""
    if isinstance(attention, GroupedQueryAttention):
        kv_heads = attention.num_key_value_heads
        if kv_heads % tp and tp % kv_heads:
            larger, smaller = max(kv_heads, tp), min(kv_heads, tp)
            yield f"{larger} is not divisible by {smaller}: KV heads {kv_heads}, tensor parallel size {tp}"
    elif isinstance(attention, Mamba2):
        if attention.num_heads % tp:
            yield "Tensor parallel world size must divide num heads."
        elif attention.n_groups % tp and attention.n_groups != 1:
            yield "If tensor parallel world size does not divide num_groups, then num_groups must equal 1."
    else:
        for size in _units(attention):
            if size % tp:
                yield f"{size} is not divisible by {tp}"


def _units(attention: Attention) -> tuple[int, ...]:
    if isinstance(attention, Mamba1):
        return (attention.intermediate_size,)
    if isinstance(attention, GatedDeltaNet):
        return (attention.num_key_heads, attention.num_value_heads)
    if isinstance(attention, KimiDeltaAttention | LightningAttention):
        return (attention.num_heads,)
    return (attention.channels,) if isinstance(attention, ShortConv) else ()


def _fp8_blocks(spec: ModelSpec, group: LayerGroup, parallel: Parallelism, rules: Rules) -> Iterator[str]:
    """A rank's share of a row-parallel matrix in FP8 must be whole blocks (`validate_fp8_block_shape`)."""
    q = spec.quantization
    if q is None or q.weight_format != "fp8_block" or q.block is None or len(q.block) != 2 or parallel.tp == 1:
        return
    block_n, block_k = q.block
    elsewhere = {*q.unquantized, *(p.part for p in q.parts)}
    for part, size in _row_parallel(group):
        share = size // parallel.tp
        if part not in elsewhere and share % block_k:
            yield (
                f"Weight input_size_per_partition = {share} is not divisible by weight quantization "
                f"block_k = {block_k}."
            )
    if isinstance(group.mlp, MoeMlp) and parallel.ep == 1 and "experts" not in elsewhere:
        share = group.mlp.moe_intermediate_size // parallel.tp
        finer = gcd(block_n, block_k, share, spec.hidden_size) >= _LEAST_FP8_BLOCK
        if share % block_n and not (finer and rules.refines_fp8_experts and q.quant_method == "fp8"):
            yield (
                f"The output_size of gate's and up's weight = {share} is not divisible by weight quantization "
                f"block_n = {block_n}."
            )


def _row_parallel(group: LayerGroup) -> Iterator[tuple[str, int]]:
    """(part, input size) of output and down projections."""
    for attention in group.attention:
        if isinstance(attention, GroupedQueryAttention | MultiHeadLatentAttention):
            yield "attention", attention.num_attention_heads * (attention.v_head_dim or attention.head_dim)
    if isinstance(group.mlp, DenseMlp):
        yield "mlp", group.mlp.intermediate_size
    elif isinstance(group.mlp, MoeMlp) and group.mlp.shared_intermediate_size:
        yield "shared_experts", group.mlp.shared_intermediate_size
