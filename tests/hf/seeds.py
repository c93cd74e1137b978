"""A corpus of compact configs, one for each way in which a config can say what a layer keeps.

The keys are those of real files of the family; the sizes are small and of our own choice, so that every figure in
`EXPECTED` can be checked by hand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Config = dict[str, Any]


def _config(model_type: str, layers: int = 4, **more: Any) -> Config:
    """A flat decoder of 8 query heads x 16 and 2 KV heads."""
    base = {
        "model_type": model_type, "num_hidden_layers": layers, "hidden_size": 128, "num_attention_heads": 8,
        "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 1000, "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    return {**base, **more}


_LATENT = {
    "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "q_lora_rank": None,
    "num_key_value_heads": 8,
}  # fmt: skip
_INDEX = {"index_head_dim": 32, "index_n_heads": 4, "index_topk": 256}
_MAMBA = {
    "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4,
    "mamba_expand": 2,
}  # fmt: skip
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "head_dim": 16,
}  # fmt: skip
_KDA = {"num_heads": 4, "head_dim": 8, "short_conv_kernel_size": 4}
_V4 = {
    "num_key_value_heads": 1, "head_dim": 64, "qk_rope_head_dim": 16, "sliding_window": 128, "q_lora_rank": 32,
    "o_lora_rank": 32, "o_groups": 2, **_INDEX,
}  # fmt: skip


class Seed(NamedTuple):
    """A config, its layers by type, and the elements that grow per token over all layers (index keys apart)."""

    config: Config
    kinds: dict[str, int]
    growing_elements: float


def _seed(config: Config, growing_elements: float, **kinds: int) -> Seed:
    return Seed(config, kinds, growing_elements)


_WRAPPED = {"model_type": "llava", "vision_config": {"num_hidden_layers": 24, "hidden_size": 1024}}

SEEDS: dict[str, Seed] = {
    "gqa": _seed(_config("llama"), 256, full_attention=4),
    "mha": _seed(_config("llama", num_key_value_heads=None), 1024, full_attention=4),
    "old names": _seed(
        {"model_type": "gpt2", "n_layer": 4, "n_embd": 128, "n_head": 8, "n_positions": 1024, "vocab_size": 1000},
        1024, full_attention=4,
    ),
    "window everywhere": _seed(_config("mistral", sliding_window=1024), 0, sliding_attention=4),
    "window beyond the context": _seed(_config("phi3", sliding_window=8192), 256, full_attention=4),
    "window switched off": _seed(
        _config("qwen2", use_sliding_window=False, sliding_window=1024, max_window_layers=2), 256, full_attention=4
    ),
    "window from a layer on": _seed(
        _config("qwen2", use_sliding_window=True, sliding_window=1024, max_window_layers=3),
        192, full_attention=3, sliding_attention=1,
    ),
    "window by pattern": _seed(
        _config("gemma3_text", 12, head_dim=16, sliding_window=512, sliding_window_pattern=6),
        128, sliding_attention=10, full_attention=2,
    ),
    "window by letters": _seed(
        _config("exaone4", 8, sliding_window=512, sliding_window_pattern="LLLG"), 128, sliding_attention=6,
        full_attention=2
    ),
    "window on even layers": _seed(
        _config("gemma2", head_dim=16, sliding_window=512), 128, sliding_attention=2, full_attention=2
    ),
    "window by list": _seed(
        _config("gpt_oss", head_dim=16, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 2),
        128, sliding_attention=2, full_attention=2,
    ),
    "window heads of their own": _seed(
        _config(
            "mimo_v2_flash", head_dim=24, v_head_dim=16, sliding_window=128, swa_num_key_value_heads=4,
            hybrid_layer_pattern=[0, 1, 1, 1],
        ),
        80, full_attention=1, sliding_attention=3,
    ),
    "chunks": _seed(
        _config("llama4_text", head_dim=16, attention_chunk_size=1024), 64, chunked_attention=3, full_attention=1
    ),
    "wide global heads": _seed(
        _config(
            "gemma4_text", 6, head_dim=16, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True,
            sliding_window=512, num_kv_shared_layers=0,
        ),
        64, sliding_attention=5, full_attention=1,
    ),
    "last layers share": _seed(
        _config("gemma3n_text", 10, head_dim=16, sliding_window=512, num_kv_shared_layers=4),
        64, sliding_attention=5, full_attention=1, **{"none(kv shared)": 4},
    ),
    "neighbours share": _seed(
        _config("hunyuan", use_cla=True, cla_share_factor=2), 128, full_attention=2, **{"none(kv shared)": 2}
    ),
    "multi-query": _seed(
        _config("falcon", multi_query=True, new_decoder_architecture=False, num_key_value_heads=None), 128,
        full_attention=4
    ),
    "query groups": _seed(
        {
            "model_type": "chatglm", "num_layers": 4, "hidden_size": 128, "num_attention_heads": 8, "kv_channels": 16,
            "multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 1000, "seq_length": 4096,
        },
        256, full_attention=4,
    ),
    "heads in a section": _seed(
        {
            "model_type": "dbrx", "n_layers": 4, "d_model": 128, "n_heads": 8, "attn_config": {"kv_n_heads": 2},
            "max_seq_len": 4096, "vocab_size": 1000,
        },
        256, full_attention=4,
    ),
    "heads by layer": _seed(
        _config("openelm", head_dim=16, num_key_value_heads=None, num_kv_heads=[1, 1, 2, 2], num_query_heads=[4, 4,
        8, 8]),
        192, full_attention=4,
    ),
    "blocks": _seed(
        _config(
            "nemotron-nas", num_key_value_heads=None,
            block_configs=[
                {"attention": {"n_heads_in_group": 4, "no_op": False}}, {"attention": {"no_op": True}},
                {"attention": {"replace_with_linear": True}}, {"attention": {"n_heads_in_group": 8}},
            ],
        ),
        96, full_attention=2, **{"none(no_op attention)": 1, "none(linear replacement)": 1},
    ),
    "latent": _seed(_config("deepseek_v3", **_LATENT, num_nextn_predict_layers=1), 320, mla=4),
    "latent, two in a layer": _seed(
        {**_config("longcat_flash", **_LATENT, attention_method="MLA"), "num_hidden_layers": None, "num_layers": 2},
        320, mla=4
    ),
    "latent with index": _seed(_config("deepseek_v32", **_LATENT, **_INDEX, num_nextn_predict_layers=1), 320,
    mla_dsa=4),
    "index shared": _seed(
        _config("glm_moe_dsa", **_LATENT, **_INDEX, indexer_types=["full", "shared", "shared", "full"]),
        320, mla_dsa=2, mla_dsa_shared_index=2,
    ),
    "index of blocks": _seed(
        _config(
            "minimax_m3", head_dim=16,
            sparse_attention_config={
                "sparse_index_dim": 32, "sparse_topk_blocks": 4, "sparse_block_size": 64,
                "sparse_attention_freq": [0, 1, 1, 1],
            },
        ),
        256, full_attention=1, gqa_block_sparse=3,
    ),
    "compressed": _seed(
        _config("deepseek_v4", **_V4, compress_ratios=[0, 4, 128, 4, 0], num_nextn_predict_layers=1),
        32.5, sliding_shared_kv=1, csa=2, hca=1,
    ),
    "compressed, few sources": _seed(
        _config(
            "deepseek_v41", **_V4, compress_ratios=[0, 1, 2, 2], kv_source_layer_ids=[1, 2],
            index_source_layer_ids=[1, 2],
        ),
        96, sliding_shared_kv=2, csa=2,
    ),
    "delta net": _seed(_config("qwen3_next", **_DELTA, full_attention_interval=4), 64, gated_deltanet=3,
    full_attention=1),
    "kda, from 1": _seed(
        _config("kimi_linear", **_LATENT, linear_attn_config={**_KDA, "full_attn_layers": [4], "kda_layers": [1, 2,
        3]}),
        80, kda=3, mla=1,
    ),
    "kda, from 0": _seed(
        _config(
            "glm5_next_text", **_LATENT, **_INDEX, index_kpool=4,
            linear_attn_config={**_KDA, "full_attn_layers": [3], "kda_layers": [0, 1, 2]},
        ),
        80, kda=3, mla_dsa=1,
    ),
    "lightning": _seed(
        _config("minimax_m1", attn_type_list=[0, 0, 0, 1]), 64, lightning_linear=3, full_attention=1
    ),
    "mamba-1 by period": _seed(
        _config(
            "jamba", attn_layer_period=4, attn_layer_offset=2, mamba_expand=2, mamba_d_state=16, mamba_d_conv=4,
            mamba_dt_rank="auto",
        ),
        64, mamba1=3, full_attention=1,
    ),
    "mamba-1 alone": _seed(
        {
            "model_type": "falcon_mamba", "num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 256,
            "state_size": 16, "conv_kernel": 4, "expand": 16, "vocab_size": 1000,
        },
        0, mamba1=4,
    ),
    "mamba-2 by letters": _seed(
        _config(
            "nemotron_h", 5, head_dim=16, hybrid_override_pattern="M-M*E", mamba_num_heads=4, mamba_head_dim=8,
            ssm_state_size=16, n_groups=2, conv_kernel=4,
        ),
        64, mamba2=2, full_attention=1, **{"none(mlp)": 1, "none(moe)": 1},
    ),
    "mamba-2 by indices": _seed(_config("bamba", **_MAMBA, attn_layer_indices=[3]), 64, mamba2=3, full_attention=1),
    "mamba-2 by list": _seed(
        _config("granitemoehybrid", **_MAMBA, layer_types=["mamba", "mamba", "attention", "mamba"]),
        64, mamba2=3, full_attention=1,
    ),
    "mamba-2 beside attention": _seed(_config("falcon_h1", **_MAMBA), 256, full_attention=4, mamba2=4),
    "mamba-2 with a shared block": _seed(
        _config(
            "zamba2", num_key_value_heads=8, n_mamba_heads=4, mamba_headdim=8, mamba_d_state=16, mamba_ngroups=1,
            mamba_d_conv=4, hybrid_layer_ids=[1, 3], attention_head_dim=32,
        ),
        1024, mamba2=4, full_attention=2,
    ),
    "mamba-2 alone": _seed(
        {
            "model_type": "mamba", "architectures": ["Mamba2ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 128,
            "num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 2, "conv_kernel": 4, "vocab_size": 1000,
        },
        0, mamba2=4,
    ),
    "short convolutions": _seed(
        _config("lfm2", conv_L_cache=3, layer_types=["conv", "conv", "full_attention", "conv"]),
        64, short_conv=3, full_attention=1,
    ),
    "rwkv": _seed(
        {
            "model_type": "rwkv6", "num_hidden_layers": 4, "hidden_size": 128, "attention_hidden_size": 128,
            "head_size": 16, "vocab_size": 1000,
        },
        0, rwkv=4,
    ),
    "encoder and decoder": _seed(
        {
            "model_type": "bart", "d_model": 128, "encoder_layers": 6, "decoder_layers": 4, "num_hidden_layers": 6,
            "encoder_attention_heads": 16, "decoder_attention_heads": 8, "max_position_embeddings": 1024,
            "vocab_size": 1000, "is_encoder_decoder": True,
        },
        1024, full_attention=4, cross_attention=4,
    ),
    "images across": _seed(
        {
            "model_type": "mllama",
            "text_config": _config("mllama_text_model", cross_attention_layers=[1]),
            "vision_config": {"image_size": 28, "patch_size": 14, "max_num_tiles": 4},
        },
        192, full_attention=3, cross_attention=1,
    ),
    "wrapped": _seed({**_WRAPPED, "text_config": _config("llama")}, 256, full_attention=4),
    "wrapped and sparse": _seed(
        {**_WRAPPED, "text_config": {"model_type": "llama", "vocab_size": 1000}}, 32 * 8192, full_attention=32
    ),
    "wrapped twice": _seed(
        {"model_type": "omni", "thinker_config": {"text_config": _config("qwen2", use_sliding_window=False)}},
        256, full_attention=4,
    ),
    "unknown but plain": _seed(_config("brand_new"), 256, full_attention=4),
}  # fmt: skip
