"""One meaning, many spellings: the names under which HF configs state the same figure.

The first name is the common one and the name that kvplan's errors use (hf_config_quirks: names for the same thing).
`LARGEST` bounds what each figure can be in a real model: what lies beyond is a damaged file, not a large model.
"""

from __future__ import annotations

from collections.abc import Mapping

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "num_transformer_layers"),
    "hidden_size": ("n_embd", "n_embed", "d_model", "model_dim", "dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "n_kv_heads", "num_attention_groups"),
    "head_dim": ("kv_channels", "attention_head_dim", "d_kv"),
    "max_position_embeddings": (
        "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length", "max_context_length",
        "model_max_length", "max_target_positions",
    ),
    "vocab_size": ("padded_vocab_size", "embedding_size"),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim", "decoder_ffn_dim", "d_ff", "inter_dim"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token", "moe_topk", "top_k_experts", "experts_per_token", "moe_top_k", "moe_k",
        "num_experts_per_topk", "n_activated_experts",
    ),
    "sliding_window": ("sliding_window_size", "sliding_window_attention_size"),
    "sliding_window_pattern": ("_sliding_window_pattern",),
    "torch_dtype": ("dtype",),
    "layer_types": ("layers_block_type",),
}  # fmt: skip

LARGEST: Mapping[str, int] = {
    "num_hidden_layers": 4096,
    "num_attention_heads": 2**14,
    "num_key_value_heads": 2**14,
    "head_dim": 2**14,
    "hidden_size": 2**20,
    "vocab_size": 2**31,
    "max_position_embeddings": 2**40,
    "sliding_window": 2**40,
}
LARGEST_OTHER = 2**31
"""The bound of every count that has no line of its own."""
