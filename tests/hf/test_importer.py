"""Every way of saying what a layer keeps, on the corpus; and what a spec carries beside its layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.cache import PerToken
from kvplan.errors import BadInput
from kvplan.hf import import_config, spec_from_config
from kvplan.model import ModelSpec
from tests.hf.seeds import SEEDS, Config


def read(config: Config) -> ModelSpec:
    return spec_from_config(config, name="seed", source="config.json")


def growing_elements(spec: ModelSpec) -> float:
    """Elements per token over all layers, index keys apart."""
    tensors = [(n, t) for n, a in spec.mixers() for t in a.tensors() if t.role != "index_k"]
    return sum(
        n * t.elements_per_slot * float(t.law.slots_per_token()) for n, t in tensors if isinstance(t.law, PerToken)
    )


@pytest.mark.parametrize("name", SEEDS)
def test_layers_are_of_the_kinds_that_the_config_says(name: str) -> None:
    assert read(SEEDS[name].config).layers_by_kind() == SEEDS[name].kinds


@pytest.mark.parametrize("name", SEEDS)
def test_what_grows_is_counted_exactly(name: str) -> None:
    assert growing_elements(read(SEEDS[name].config)) == SEEDS[name].growing_elements


def fixed_elements(spec: ModelSpec, role: str) -> int:
    return sum(n * t.elements_per_slot * t.slots(1) for n, a in spec.mixers() for t in a.tensors() if t.role == role)


@pytest.mark.parametrize(
    ("name", "role", "elements"),
    [
        ("delta net", "recurrent_state", 3 * 4 * 8 * 8),
        ("delta net", "conv_state", 3 * 3 * (2 * 2 * 8 + 4 * 8)),
        ("kda, from 1", "recurrent_state", 3 * 4 * 8 * 8),
        ("kda, from 1", "conv_state", 3 * 3 * 3 * 4 * 8),
        ("lightning", "recurrent_state", 3 * 8 * 16 * 16),
        ("mamba-1 by period", "recurrent_state", 3 * 256 * 16),
        ("mamba-1 alone", "recurrent_state", 4 * 256 * 16),
        ("mamba-2 by letters", "recurrent_state", 2 * 4 * 8 * 16),
        ("mamba-2 by letters", "conv_state", 2 * 3 * (4 * 8 + 2 * 2 * 16)),
        ("mamba-2 alone", "recurrent_state", 4 * 8 * 32 * 16),
        ("short convolutions", "conv_state", 3 * 2 * 128),
        ("rwkv", "recurrent_state", 4 * 8 * 16 * 16),
        ("compressed", "compressor_state", 2 * 4 * 4 * (64 + 32) + 128 * 2 * 64),
    ],
)
def test_states_have_the_shape_that_the_config_gives(name: str, role: str, elements: int) -> None:
    assert fixed_elements(read(SEEDS[name].config), role) == elements


def test_image_tokens_are_counted_by_tiles_and_patches() -> None:
    spec = read(SEEDS["images across"].config)
    cross = next(a for _, a in spec.mixers() if a.kind == "cross")
    assert cross.encoder_tokens == 4 * (2 * 2 + 1)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("latent", ["mla"]), ("latent with index", ["mla_dsa"]), ("compressed", ["sliding_shared_kv"]), ("gqa", [])],
)
def test_multi_token_prediction_adds_layers_after_the_decoder(name: str, kinds: list[str]) -> None:
    spec = read(SEEDS[name].config)
    assert [a.layer_type for g in spec.mtp for a in g.attention] == kinds
    assert all(min(g.indices) == spec.num_hidden_layers for g in spec.mtp)


def test_class_defaults_are_noted_and_only_fill_nested_configs() -> None:
    sparse = SEEDS["wrapped and sparse"].config
    assert any("num_hidden_layers is absent: 32" in note for note in read(sparse).notes)
    with pytest.raises(BadInput, match="num_hidden_layers: missing; transformers would assume 32"):
        read(sparse["text_config"])


def test_an_unknown_model_type_is_noted() -> None:
    assert any("'brand_new' is unknown" in note for note in read(SEEDS["unknown but plain"].config).notes)


def test_layers_that_differ_only_after_attention_are_grouped_apart() -> None:
    config = SEEDS["latent"].config | {
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "first_k_dense_replace": 1,
    }  # fmt: skip
    assert [(g.layers, g.mlp and g.mlp.kind) for g in read(config).layer_groups] == [("0", "dense"), ("1-3", "moe")]


@pytest.mark.parametrize(
    ("more", "context"),
    [
        ({}, 4096),
        ({"model_max_length": 131072}, 131072),
        ({"seq_length": 512}, 4096),
        ({"max_position_embeddings": None, "seq_length": 512}, 512),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_the_maximum_context_is_the_one_that_is_meant(more: Config, context: int | None) -> None:
    assert read(SEEDS["gqa"].config | more).max_position_embeddings == context


def test_embeddings_are_tied_where_the_class_ties_them() -> None:
    assert read(SEEDS["window on even layers"].config).tie_word_embeddings
    assert not read(SEEDS["gqa"].config).tie_word_embeddings
    assert read({**SEEDS["wrapped"].config, "tie_word_embeddings": True}).tie_word_embeddings


def test_a_directory_is_read_with_the_kv_hint_beside_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEEDS["gqa"].config))
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}})
    )
    spec = import_config(tmp_path)
    assert spec == import_config(tmp_path / "config.json")
    assert (spec.name, spec.source) == (tmp_path.name, str(tmp_path / "config.json"))
    assert spec.quantization is not None
    assert (spec.quantization.weight_format, spec.quantization.kv_cache_dtype) == ("nvfp4", "fp8")


def test_deepseeks_own_inference_config_is_mla() -> None:
    native = {
        "dim": 128, "n_layers": 4, "n_heads": 8, "vocab_size": 1000, "kv_lora_rank": 64, "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 32, "v_head_dim": 32, "n_dense_layers": 1, "n_routed_experts": 8, "n_activated_experts": 2,
        "inter_dim": 256, "moe_inter_dim": 64, "n_shared_experts": 1, "dtype": "fp8",
    }  # fmt: skip
    assert read(native).layers_by_kind() == {"mla": 4}
    assert read(native | {"index_head_dim": 32, "index_n_heads": 4, "index_topk": 64}).layers_by_kind() == {
        "mla_dsa": 4
    }
