"""Keys that would change the cache and that no rule has read.

A cache is described by few words: windows, chunks, compression, latents, sharing, states, heads. A key that speaks of
one of them, holds something, was read by no rule and is not known to be harmless means that the model does what the
importer does not understand; such a config is refused, whatever its model_type.
"""

from __future__ import annotations

import re
from typing import Any

from kvplan.errors import Unsupported
from kvplan.hf.fields import Fields, shown

_DECISIVE = re.compile(
    r"window|chunk|compress|lora_rank|layer_type|layers_block|block_type|block_config|pattern|sliding|swa_|_swa"
    r"|ssm|mamba|conv|linear|recurr|retention|wkv|kv_head|key_value|kv_shared|shared_kv|kv_source|sparse_att|index_"
    r"|indexer|attn_config|attn_layer(?!_?norm)|attention_layer(?!_?norm)|attn_type|attention_type|layer_ids|layer_indices|multi_query",
    re.IGNORECASE,
)
"""Words that decide the cache: only the exact names below may go unread."""
_KNOWN_HARMLESS = frozenset(
    (
        # implementation, training, and choices of MLC-LLM's runtime
        "chunk_size_feed_forward", "use_mamba_kernels", "use_mambapy", "prefill_chunk_size", "seconds_per_chunk",
        "chunk_size", "mamba_chunk_size", "loss_chunk_size", "use_unified_vision_chunk", "audio_chunk_size",
        "global_compression_ratio", "sparsity_config", "context_window_size", "attention_sink_size",
        "dual_chunk_attention_config", "max_window_layers",
        # biases, activations and scales of layers whose shape other keys give
        "add_bias_linear", "mamba_conv_bias", "mamba_proj_bias", "use_conv_bias", "conv_bias", "mamba_hidden_act",
        "hidden_mamba_act", "mamba_rms_norm", "mamba_norm_before_gate", "mamba_dt_rank", "mamba_use_mlp",
        "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier", "conv_use_xavier_init", "conv_dim_out",
        "linear_lower_bound", "linear_attn_alpha_factor", "linear_attn_beta_factor", "activation_situ_linear_beta",
        "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", "activation_sparsity_pattern",
        "swa_rope_theta", "add_swa_attention_sink_bias", "linear_a_log_min", "linear_a_log_max", "linear_dt_min",
        "linear_dt_max", "linear_dt_init_floor", "linear_allow_neg_eigval", "mla_scale_kv_lora", "mlp_layer_types",
        # an indexer's choices that change what is read, never what is stored
        "index_skip_topk_offset", "index_topk_freq", "index_topk_pattern", "index_share_for_mtp_iteration",
        "indexer_rope_interleave", "index_kpool_always_select_tail", "index_kpool_compress",
        "expert_layer_period", "expert_layer_offset", "shared_intermediate_size", "interleave_moe_layer_step",
        "num_mem_blocks", "decoder_sparse_step", "num_beam_groups",
    )
)  # fmt: skip
_SUGGESTIVE = re.compile(
    r"latent|shar|state|memory|sink(?!horn)|sparse|hybrid|local|global|landmark|evict|cross|interval|period|every|delta|head"
    r"|group|\bkv|kv_|_kv|linear|num_hidden_layers|num_layers|n_layers?\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"^use_cache|cache_implementation|output_|pretraining|dropout|_pdrop|init|gradient|^return|jitter|loss"
    r"|aux|_plan$|kernel|^_attn|attn_impl|flash|pruned_heads|^is_|^add_cross_attention|state_dict"
    r"|norm|bias|eps$|scal|multiplier|softcap|softmax|fp32|dtype|activation|rope|rotary|clip|alpha|beta|theta|logit|scalar"
    r"|expert|moe|router|routed|^n_group|^topk_group|grouped_topk|lm_head|classif|reward|image|vision|visual|video|audio"
    r"|patch|spatial|^mm_|projector|tie_|embed|vocab|parallel|quant|^layers\.",
    re.IGNORECASE,
)


def _empty(value: Any) -> bool:
    return value is None or value is False or value == 0 or value in ("", [], {})


def _suspicious(key: str) -> bool:
    if _DECISIVE.search(key):
        return key not in _KNOWN_HARMLESS
    return bool(_SUGGESTIVE.search(key)) and not _HARMLESS.search(key) and key not in _KNOWN_HARMLESS


def unexplained(fields: Fields) -> list[tuple[Fields, str]]:
    """Keys that speak of the cache, hold something, and were neither read nor known to be harmless."""
    found = [
        (fields, key)
        for key, value in fields.raw.items()
        if key not in fields.read and not _empty(value) and _suspicious(key)
    ]
    for section in fields.sections.values():
        found += unexplained(section)
    return found


def refuse_unexplained(fields: Fields, model_type: str) -> None:
    """Raise `Unsupported` for the first key that no rule explains."""
    found = unexplained(fields)
    if not found:
        return
    section, key = found[0]
    more = f" (and {', '.join(k for _, k in found[1:4])})" if len(found) > 1 else ""
    raise Unsupported(
        f"{section.where}: {key}: {shown(section.raw[key])}{more} may change the cache, and no rule of model_type "
        f"{model_type!r} explains it; describe the model in a YAML spec instead"
    )
