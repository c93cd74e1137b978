"""Parameters of imported configs: families by their traits, encoders by their kind, notes on what is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.errors import BadInput, KvplanError
from kvplan.hf import spec_from_config
from kvplan.mlp import MoeMlp
from kvplan.model import ModelSpec
from kvplan.weights import params_by_part, params_total

Config = dict[str, Any]
LLAMA: Config = {
    "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
SIGLIP: Config = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 896, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
QWEN_VIT: Config = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 2048,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip


def read(config: Mapping[str, Any]) -> ModelSpec:
    return spec_from_config(config, name="toy", source="config.json")


def total(**changes: Any) -> int:
    return params_total(read(LLAMA | changes))


def heads_of(spec: ModelSpec) -> GroupedQueryAttention:
    return next(a for _, a in spec.mixers() if isinstance(a, GroupedQueryAttention))


PLAIN_TOTAL = 2 * 256 * 64 + 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64


def test_a_llama_counted_by_hand() -> None:
    assert total() == PLAIN_TOTAL


@pytest.mark.parametrize(
    ("changes", "elements"),
    [
        ({"attention_bias": True}, 64 + 2 * 32 + 64),
        ({"mlp_bias": True}, 2 * 128 + 64),
        ({"model_type": "qwen2"}, 64 + 2 * 32),
        ({"model_type": "qwen3"}, 2 * 16),
        ({"model_type": "qwen3", "attention_bias": True}, 2 * 16 + 64 + 2 * 32 + 64),
        ({"model_type": "glm4"}, 64 + 2 * 32 + 2 * 64),
        ({"model_type": "olmo2"}, 64 + 32),
        ({"model_type": "gemma2", "sliding_window": 8}, 2 * 64),
        ({"model_type": "arcee"}, -64 * 128),
        ({"model_type": "stablelm", "use_qkv_bias": True, "use_parallel_residual": True}, 64 + 2 * 32),
        ({"model_type": "starcoder2"}, -64 * 128 + 64 + 2 * 32 + 64 + 128 + 64 + 2 * 64),
        ({"model_type": "seed_oss", "attention_bias": True, "attention_out_bias": False}, 64 + 2 * 32),
        ({"model_type": "internlm2", "bias": True}, 64 + 2 * 32 + 64),
        ({"model_type": "muse_glimmer_text"}, 2 * 64 + 64 * 64),
    ],
)
def test_what_a_family_adds_to_each_of_two_layers(changes: Config, elements: int) -> None:
    outer = {"starcoder2": 64, "stablelm": 64}.get(changes.get("model_type", ""), 0)  # the final norm's bias
    assert total(**changes) - PLAIN_TOTAL == 2 * elements + outer


@pytest.mark.parametrize(
    ("changes", "elements"),
    [
        ({"model_type": "olmo"}, -5 * 64),
        ({"model_type": "cohere", "use_qk_norm": True}, 2 * (64 + 32 - 64)),
        ({"model_type": "orion"}, 5 * 64),
        ({"model_type": "phi3"}, 0),
        ({"model_type": "qwen", "intermediate_size": 256}, 2 * (64 + 2 * 32)),
    ],
)
def test_what_a_family_changes_in_the_whole_model(changes: Config, elements: int) -> None:
    assert total(**changes) - PLAIN_TOTAL == elements


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
         124_439_808),
        ({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
          "max_position_embeddings": 2048, "vocab_size": 50272}, 125_239_296),
        ({"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880},
         559_214_592),
        ({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "vocab_size": 50400},
         6_050_882_784),
        ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
          "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False,
          "vocab_size": 65024}, 6_921_720_704),
        ({"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4,
          "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True}, 6_649_286_656),
        ({"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 51200, "max_position_embeddings": 2048},
         2_779_683_840),
        ({"model_type": "mamba", "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 24,
          "state_size": 16, "conv_kernel": 4, "time_step_rank": 48, "vocab_size": 50280, "expand": 2}, 129_135_360),
        ({"model_type": "t5", "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_decoder_layers": 6,
          "num_heads": 8, "vocab_size": 32128, "is_encoder_decoder": True, "n_positions": 512}, 60_506_624),
        ({"model_type": "bart", "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_ffn_dim": 4096,
          "decoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
          "max_position_embeddings": 1024, "vocab_size": 50265, "is_encoder_decoder": True}, 406_291_456),
    ],
)  # fmt: skip
def test_older_families_have_their_known_totals(config: Config, known: int) -> None:
    """As the repositories' safetensors metadata and transformers 5.24 on the meta device count them."""
    assert params_total(read({"torch_dtype": "float32", **config})) == known


def test_experts_beside_a_dense_mlp_and_behind_a_latent() -> None:
    moe = {"num_local_experts": 4, "num_experts_per_tok": 2}
    llama4 = read(
        LLAMA | {"model_type": "llama4_text", "interleave_moe_layer_step": 1, "attention_chunk_size": 64} | moe
    )
    (mlp,) = {g.mlp for g in llama4.layer_groups}
    assert isinstance(mlp, MoeMlp)
    assert (mlp.moe_intermediate_size, mlp.shared_intermediate_size) == (128, 128)
    latent = read(LLAMA | {"model_type": "mixtral", "moe_latent_size": 16} | moe)
    assert params_by_part(latent)["experts"] == 2 * 4 * 3 * 16 * 128


def test_a_table_of_biases_is_read_from_gpt_oss() -> None:
    config = LLAMA | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}
    spec = read(config)
    assert heads_of(spec).sinks
    assert params_by_part(spec)["experts"] == 2 * 4 * (3 * 64 * 128 + 2 * 128 + 64)


def test_layers_that_read_anothers_cache_have_no_k_and_v_of_their_own() -> None:
    own = {"model_type": "gemma3n_text", "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}
    alone = params_by_part(read(LLAMA | own | {"layer_types": ["full_attention"] * 2}))
    sharing = params_by_part(read(LLAMA | own | {"num_kv_shared_layers": 1, "layer_types": ["full_attention"] * 2}))
    assert alone["attention"] - sharing["attention"] == 2 * 64 * 32


@pytest.mark.parametrize(
    ("wrapper", "vision", "elements"),
    [
        ("gemma3", SIGLIP, 416_866_032 + 1152 * 65),
        ("qwen2_5_vl", QWEN_VIT, 668_684_288),
        ("llava", {"model_type": "pixtral"}, 403_489_792 + (1024 + 1) * 64 + (64 + 1) * 64),
    ],
)
def test_encoders_of_images_have_their_known_size(wrapper: str, vision: Config, elements: int) -> None:
    """Of the classes on the meta device; projectors end in the toy's 64."""
    config = {"model_type": wrapper, "torch_dtype": "bfloat16", "text_config": LLAMA, "vision_config": vision}
    assert params_total(read(config)) - PLAIN_TOTAL == elements


def test_vision_shares_out_over_heads_and_the_rest_is_copied() -> None:
    config = {"model_type": "gemma3", "text_config": LLAMA, "vision_config": SIGLIP}
    vision = {w.units: w.numel for w in read(config).other_weights if w.part == "vision"}
    assert vision[16] == 27 * (4 * 1152**2 + 2 * 1152 * 4304)
    assert set(vision) == {1, 16}


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (LLAMA | {"model_type": "brand_new"},
         "parameters of model_type 'brand_new' are estimated from its standard keys"),
        ({"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "new_vision"}},
         "the image encoder (new) is not counted"),
        ({"model_type": "new_vl", "text_config": LLAMA, "vision_config": SIGLIP},
         "the projector of images (new_vl) is not counted"),
        ({"model_type": "new_audio", "text_config": LLAMA, "audio_config": {"model_type": "ear", "d_model": 8}},
         "the audio encoder (ear) is not counted"),
        ({"model_type": "llava", "text_config": LLAMA, "protein_config": {"hidden_size": 8}},
         "what protein_config describes is not counted"),
        ({k: v for k, v in LLAMA.items() if k != "intermediate_size"},
         "the config does not size every MLP: those are not counted"),
    ],
)  # fmt: skip
def test_what_is_not_counted_is_said(config: Config, note: str) -> None:
    assert note in read(config).notes


def test_a_damaged_flag_is_named() -> None:
    with pytest.raises(BadInput, match=r"config\.json: attention_bias: 'yes' is neither true nor false"):
        read(LLAMA | {"attention_bias": "yes"})


@pytest.mark.parametrize("key", ["encoder_layers", "encoder_ffn_dim", "encoder_attention_heads"])
def test_an_encoder_without_sizes_is_as_the_decoder(key: str) -> None:
    config = {
        "model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 100,
        "max_position_embeddings": 64, "is_encoder_decoder": True, "torch_dtype": "float32",
    }  # fmt: skip
    whole, lacking = read(config), read({k: v for k, v in config.items() if k != key})
    assert params_total(whole) == params_total(lacking)
    assert "sizes of the encoder are absent: those of the decoder" in lacking.notes


def _encoders() -> list[Config]:
    audio = {"model_type": "qwen2_audio_encoder", "d_model": 64, "encoder_layers": 2, "encoder_ffn_dim": 128,
             "encoder_attention_heads": 4, "num_mel_bins": 80}  # fmt: skip
    kinds = (
        "gemma3",
        "qwen2_vl",
        "qwen3_vl",
        "glm4v",
        "llama4",
        "mllama",
        "internvl_chat",
        "gemma4",
        "kimi_vl",
        "minicpmv",
    )
    return [
        *({"model_type": k, "vision_config": QWEN_VIT | SIGLIP | {"model_type": k}} for k in kinds),
        {"model_type": "qwen2_audio", "audio_config": audio},
    ]


@given(st.sampled_from(_encoders()), st.data())
def test_a_damaged_encoder_is_one_line_or_a_count(config: Config, data: st.DataObject) -> None:
    key = next(k for k in config if k.endswith("_config"))
    spot = data.draw(st.sampled_from(sorted(config[key])))
    junk: Any = data.draw(st.sampled_from([None, -1, 0, "many", [], {}, 2.5, True, 10**18]))
    damaged = config | {key: config[key] | {spot: junk}, "text_config": LLAMA}
    try:
        assert params_total(read(damaged)) >= PLAIN_TOTAL
    except KvplanError as error:
        assert "\n" not in str(error)
        assert spot in str(error)
