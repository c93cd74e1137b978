"""What no rule explains is refused, in one line that names file and key; what is harmless is not."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import BadInput, KvplanError, Unsupported
from kvplan.hf import spec_from_config
from kvplan.model import ModelSpec
from tests.hf.seeds import SEEDS, Config

PLAIN = SEEDS["gqa"].config
UNKNOWN = SEEDS["unknown but plain"].config


def read(config: Config) -> ModelSpec:
    return spec_from_config(config, name="seed", source="config.json")


@pytest.mark.parametrize("base", [PLAIN, UNKNOWN], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sliding_window", 1024),
        ("local_window_tokens", 512),
        ("attention_chunk_size", 8192),
        ("compress_ratios", [4, 4, 4, 4]),
        ("kv_lora_rank", 512),
        ("index_head_dim", 128),
        ("num_kv_shared_layers", 2),
        ("mamba_d_state", 16),
        ("ssm_state_size", 16),
        ("conv_kernel", 4),
        ("linear_attn_config", {"num_heads": 4}),
        ("hybrid_override_pattern", "M*M*"),
        ("attn_type_list", [0, 1, 0, 1]),
        ("kv_source_layers", [0, 0, 2, 2]),
        ("global_attention_every", 4),
        ("num_memory_tokens", 64),
        ("cross_attention_layers", [1]),
        ("retention_heads", 8),
        ("num_key_value_heads_v2", 4),
    ],
)
def test_a_key_that_speaks_of_the_cache_is_never_passed_over(base: Config, key: str, value: Any) -> None:
    with pytest.raises(Unsupported, match=f"config.json: {key}: .*no rule of model_type") as error:
        read(base | {key: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, False, 0, [], {}, ""])
def test_a_key_that_holds_nothing_changes_nothing(value: Any) -> None:
    assert read(PLAIN | {"sliding_window": value, "kv_lora_rank": value}) == read(PLAIN)


@pytest.mark.parametrize(
    "more",
    [
        {"chunk_size_feed_forward": 128},
        {"attention_dropout": 0.1, "attention_bias": True, "attn_logit_softcapping": 50.0},
        {"num_beam_groups": 1, "output_hidden_states": True},
        {"n_shared_experts": 1, "decoder_sparse_step": 1},
        {"image_token_index": 32000, "vision_config": {"num_hidden_layers": 24}},
        {"layers_norm_eps": 1e-5, "lm_head_bias": True},
        {"use_sliding_window": False, "sliding_window": 1024, "max_window_layers": 2},
    ],
)
def test_harmless_keys_are_passed_over(more: Config) -> None:
    assert [g.tensors() for g in read(PLAIN | more).layer_groups] == [g.tensors() for g in read(PLAIN).layer_groups]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PLAIN | {"num_hidden_layers": None}, "num_hidden_layers: missing"),
        (PLAIN | {"num_hidden_layers": -4}, r"num_hidden_layers: -4 is outside 1\.\.4096"),
        (PLAIN | {"num_hidden_layers": 10**30}, "num_hidden_layers: 1000000"),
        (PLAIN | {"num_attention_heads": True}, "num_attention_heads: True is not a whole number"),
        (PLAIN | {"num_attention_heads": "8"}, "num_attention_heads: '8' is not a whole number"),
        (PLAIN | {"head_dim": float("nan")}, "head_dim: nan is not a whole number"),
        (PLAIN | {"hidden_size": 1e30}, "hidden_size: 1e.30 is not a whole number"),
        (PLAIN | {"num_key_value_heads": 3}, "3 KV heads cannot serve 8 query heads"),
        (PLAIN | {"hidden_size": 130}, "hidden_size 130 is no multiple of 8 heads"),
        (PLAIN | {"n_layer": 5}, "n_layer: 5 disagrees with num_hidden_layers: 4"),
        (PLAIN | {"architectures": "LlamaForCausalLM"}, "architectures: .* is not a list of names"),
        (PLAIN | {"model_type": ["llama"]}, "model_type: .* is not a string"),
        (PLAIN | {"torch_dtype": "float7"}, "torch_dtype: 'float7' is not a dtype"),
        (PLAIN | {"rope_scaling": "yarn"}, "rope_scaling: 'yarn' is not an object"),
        (PLAIN | {"text_config": 3}, "text_config: 3 is not an object"),
        (
            SEEDS["window by list"].config | {"layer_types": ["full_attention"]},
            "layer_types: .* has 1 entries for 4 layers",
        ),
        (SEEDS["window by list"].config | {"layer_types": ["holographic"] * 4}, "gives a layer 'holographic'"),
        (SEEDS["window by list"].config | {"sliding_window": None}, "sliding_window: missing or null"),
        (SEEDS["mamba-2 by letters"].config | {"hybrid_override_pattern": "M-X*E"}, "is not a pattern of M"),
        (SEEDS["mamba-2 by letters"].config | {"hybrid_override_pattern": "M-M*"}, "the block list has 4 entries"),
        (SEEDS["compressed"].config | {"compress_ratios": [0, 4, 8, 4]}, "gives a layer '8'"),
        (SEEDS["compressed"].config | {"compress_ratios": [0, 4]}, "is not a list of 4 ratios"),
        (SEEDS["last layers share"].config | {"num_kv_shared_layers": 10}, "leaves no layer of 10 that stores"),
        (SEEDS["multi-query"].config | {"num_kv_heads": 4}, "num_kv_heads is neither one nor all heads"),
        (SEEDS["latent"].config | {"kv_lora_rank": None}, "kv_lora_rank: missing or null"),
        ({"model_type": "bert", "num_hidden_layers": 4}, "no text decoder"),
        (UNKNOWN | {"is_encoder_decoder": True}, "has an encoder that no rule explains"),
        (UNKNOWN | {"architectures": ["BrandNewForMaskedLM"]}, "no text decoder"),
        ({"num_hidden_layers": 61, "kv_lora_rank": 512}, "model_type: missing"),
        ({}, "model_type: missing"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(config: Config, message: str) -> None:
    with pytest.raises(KvplanError, match=message) as error:
        read(config)
    assert str(error.value).startswith("config.json: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spelling", ["sliding_window_size", "sliding_window_attention_size"])
def test_a_renamed_window_is_still_a_window(spelling: str) -> None:
    config = dict(SEEDS["window everywhere"].config)
    config[spelling] = config.pop("sliding_window")
    spec = read(config)
    assert spec.layers_by_kind() == {"sliding_attention": 4}
    assert f"{spelling} is read as sliding_window" in spec.notes


def test_a_window_that_is_gone_from_a_flat_file_is_asked_for() -> None:
    config = {k: v for k, v in SEEDS["window everywhere"].config.items() if k != "sliding_window"}
    with pytest.raises(BadInput, match="sliding_window: missing; transformers would assume 4096"):
        read(config)


def test_an_architecture_that_names_another_family_wins_with_a_note() -> None:
    spec = read(PLAIN | {"model_type": "packager", "architectures": ["MistralForCausalLM"], "sliding_window": 1024})
    assert spec.layers_by_kind() == {"sliding_attention": 4}
    assert any("MistralForCausalLM is read as 'mistral'" in note for note in spec.notes)
