"""What an absent key of a nested config means: the defaults of the transformers classes (5.24, facts only).

transformers writes a sub-config without the keys that equal its class's defaults, so a wrapper's `text_config` may
lack even the number of layers (LLaVA-1.5, Qwen2-Audio, Gemma-3-4B).
"""

from __future__ import annotations

from collections.abc import Mapping

_COLUMNS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_position_embeddings", "sliding_window",
)  # fmt: skip
_ROWS: Mapping[str, tuple[int | None, ...]] = {
    "aria_text": (32, 4096, 32, None, None, 4096, 32000, 2048, None),
    "cohere": (40, 8192, 64, None, None, 22528, 256000, 8192, None),
    "cohere2": (40, 8192, 64, None, None, 22528, 256000, 8192, 4096),
    "deepseek_v2": (32, 4096, 32, None, None, 11008, 102400, 2048, None),
    "deepseek_v3": (61, 7168, 128, 128, None, 18432, 129280, 4096, None),
    "ernie4_5": (18, 1024, 16, 2, 128, 3072, 103424, 131072, None),
    "ernie4_5_vl_moe_text": (28, 2560, 20, 4, None, 12288, 103424, 131072, None),
    "exaone4": (32, 4096, 32, 32, None, 16384, 102400, 2048, 4096),
    "gemma": (28, 3072, 16, 16, 256, 24576, 256000, 8192, None),
    "gemma2": (26, 2304, 8, 4, 256, 9216, 256000, 8192, 4096),
    "gemma3_text": (26, 2304, 8, 4, 256, 9216, 262208, 131072, 4096),
    "gemma3n_text": (35, 2048, 8, 2, 256, 16384, 262400, 32768, 512),
    "gemma4_text": (30, 2304, 8, 4, 256, 9216, 262144, 131072, 512),
    "gemma4_unified_text": (30, 2304, 8, 4, 256, 9216, 262144, 262144, 1024),
    "glm4": (40, 4096, 32, 2, 128, 13696, 151552, 131072, None),
    "glm4v_text": (40, 4096, 32, 2, None, 13696, 151552, 32768, None),
    "glm4v_moe_text": (46, 4096, 96, 8, None, 10944, 151424, 65536, None),
    "glm5_next_text": (45, 4096, 64, 64, None, 12288, 154880, 1048576, None),
    "glm_ocr_text": (16, 1024, 16, 8, None, 4096, 59392, 131072, None),
    "gpt_oss": (36, 2880, 64, 8, 64, 2880, 201088, 131072, 128),
    "granite": (32, 4096, 32, None, None, 11008, 32000, 2048, None),
    "kimi_linear": (27, 2304, 32, 32, None, 9216, 163840, 1048576, None),
    "lfm2": (32, 2560, 32, 8, None, 12288, 65536, 128000, None),
    "lfm2_moe": (32, 2048, 32, 8, None, 7168, 65536, 128000, None),
    "llama": (32, 4096, 32, None, None, 11008, 32000, 2048, None),
    "llama4_text": (48, 5120, 40, 8, 128, 8192, 202048, 131072, None),
    "minimax_m3_vl_text": (60, 6144, 64, 4, 128, 3072, 200064, 524288, None),
    "ministral": (32, 4096, 32, 8, None, 14336, 32000, 131072, 4096),
    "ministral3": (34, 4096, 32, 8, 128, 14336, 131072, 262144, None),
    "mistral": (32, 4096, 32, 8, None, 14336, 32000, 131072, 4096),
    "mistral4": (36, 4096, 32, 32, None, 12288, 131072, 1048576, None),
    "mixtral": (32, 4096, 32, 8, None, 14336, 32000, 131072, None),
    "mllama_text_model": (40, 4096, 32, 8, None, 14336, 128256, 131072, None),
    "muse_glimmer_text": (52, 6656, 32, 2, 128, 19968, 202048, 131072, 2048),
    "muse_spark_text": (62, 8192, 128, 16, 64, 16384, 202048, 1048576, 2048),
    "olmo2": (32, 4096, 32, None, None, 11008, 50304, 2048, None),
    "paddleocr_vl_text": (18, 1024, 16, 2, 128, 3072, 103424, 131072, None),
    "persimmon": (36, 4096, 64, None, None, 16384, 262144, 16384, None),
    "phi": (24, 2048, 32, None, None, 8192, 51200, 2048, None),
    "phi3": (32, 3072, 32, None, None, 8192, 32064, 4096, None),
    "qwen2": (32, 4096, 32, 32, None, 22016, 151936, 32768, 4096),
    "qwen2_moe": (24, 2048, 16, 16, None, 5632, 151936, 32768, 4096),
    "qwen2_5_omni_text": (28, 3584, 28, 4, None, 18944, 152064, 32768, 32768),
    "qwen2_5_vl_text": (80, 8192, 64, 8, None, 29568, 152064, 32768, 4096),
    "qwen2_vl_text": (80, 8192, 64, 8, None, 29568, 152064, 32768, 4096),
    "qwen3": (32, 4096, 32, 32, 128, 22016, 151936, 32768, 4096),
    "qwen3_5_moe_text": (40, 2048, 16, 2, 256, None, 248320, 32768, None),
    "qwen3_5_text": (32, 4096, 16, 4, 256, 12288, 248320, 32768, None),
    "qwen3_moe": (24, 2048, 32, 4, None, 6144, 151936, 32768, 4096),
    "qwen3_omni_moe_text": (28, 2048, 28, 4, None, 18944, 3584, 32768, None),
    "qwen3_vl_moe_text": (24, 2048, 16, 16, None, 5632, 151936, 128000, None),
    "qwen3_vl_text": (32, 4096, 32, 32, 128, 22016, 151936, 128000, None),
    "smollm3": (36, 2048, 16, 4, None, 11008, 128256, 32768, None),
    "starcoder2": (30, 3072, 24, 2, None, 12288, 49152, 4096, None),
    "step3p5": (45, 4096, 64, 8, 128, 11264, 128815, 128000, None),
}
_HEADS: Mapping[str, tuple[int | None, int | None]] = {
    "afmoe": (None, 128), "bamba": (8, None), "cohere2_moe": (None, 128), "cwm": (8, 128), "ernie4_5_moe": (4, None),
    "exaone": (8, None), "exaone_moe": (32, None), "falcon_h1": (8, None), "glm": (2, 128), "glm4_moe": (8, None),
    "helium": (20, 128), "hy_v3": (8, 128), "internlm3": (2, 128), "iquestcoder": (8, 128), "jamba": (8, None),
    "laguna": (8, 128), "lara_mini": (4, 128), "lfm3": (4, 128), "mellum": (4, 128), "mimo_v2_flash": (4, 192),
    "minimax": (8, None), "minimax_m2": (8, 128), "nemotron_h": (8, 128), "phi4_multimodal": (8, None),
    "phimoe": (8, None), "qwen3_next": (2, 256), "sarvam_moe": (4, 64), "seed_oss": (8, 128), "solar_open": (8, 128),
    "vaultgemma": (4, 256),
}  # fmt: skip
"""KV heads and head_dim of classes whose files are flat: a file that lacks them is refused, not read as MHA."""
_DEEPSEEK = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_DELTANET = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}  # fmt: skip
_MORE: Mapping[str, Mapping[str, int]] = {
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "gemma3n_text": {"num_kv_shared_layers": 15},
    "gemma4_text": {"global_head_dim": 512},
    "gemma4_unified_text": {"global_head_dim": 512},
    "glm5_next_text": {
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 256, "v_head_dim": 256, "index_topk": 2048,
        "index_head_dim": 128, "index_n_heads": 32, "index_kpool": 16, "linear_head_dim": 128, "linear_num_heads": 64,
        "linear_conv_kernel_dim": 4,
    },
    "kimi_linear": {
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "linear_head_dim": 128,
        "linear_num_heads": 32, "linear_conv_kernel_dim": 4,
    },
    "lfm2": {"conv_L_cache": 3},
    "lfm2_moe": {"conv_L_cache": 3},
    "llama4_text": {"attention_chunk_size": 8192},
    "minimax_m3_vl_text": {"index_head_dim": 128, "index_topk_blocks": 16, "index_block_size": 128},
    "mistral4": {
        "kv_lora_rank": 256, "q_lora_rank": 1024, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "qwen3_5_moe_text": _DELTANET,
    "qwen3_5_text": _DELTANET,
}  # fmt: skip
_TIED = frozenset(
    (
        "bart", "biogpt", "blenderbot", "bloom", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe",
        "ernie4_5_vl_moe_text", "falcon", "falcon_mamba", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n",
        "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified_text", "gpt2", "gpt_bigcode", "gpt_neo", "lfm2",
        "lfm2_moe", "m2m_100", "mamba", "marian", "mbart", "minicpm", "minicpm3", "mpt", "mt5", "openai-gpt", "openelm",
        "opt", "paddleocr_vl_text", "pegasus", "phi3small", "plbart", "qwen2_5_omni_text", "qwen3_vl_moe_text",
        "smollm3", "starcoder2", "t5", "umt5", "vaultgemma", "whisper", "xglm", "zamba", "zamba2",
    )
)  # fmt: skip


def class_defaults(model_type: str) -> Mapping[str, int]:
    """The sizes that the class of a model_type has by default; empty where none is known."""
    sizes = dict(zip(_COLUMNS, _ROWS.get(model_type, ()), strict=False))
    heads = dict(zip(("num_key_value_heads", "head_dim"), _HEADS.get(model_type, ()), strict=False))
    stated = {name: value for name, value in {**heads, **sizes}.items() if value is not None}
    return {**stated, **_MORE.get(model_type, {})}


def tied_by_default(model_type: str) -> bool:
    """Whether an absent `tie_word_embeddings` means true."""
    return model_type in _TIED
