"""What checkpoints say of weights, and of KV: one never implies the other."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.errors import BadInput
from kvplan.hf.quantization import quantization
from kvplan.model import Quantization

NVFP4_GROUP = {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}
INT4_GROUP = {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}
FP8_KV = {"num_bits": 8, "type": "float", "dynamic": False}


def read(config: dict[str, Any], beside: dict[str, Any] | None = None, **more: Any) -> Quantization | None:
    return quantization(({"quantization_config": config, **more},), beside, "config.json")


def test_a_file_that_says_nothing_has_no_quantization() -> None:
    assert quantization(({},), None, "config.json") is None


@pytest.mark.parametrize(
    ("config", "weight_format", "block"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", (128, 128)),
        ({"quant_method": "fp8", "weight_block_size": [32, 32]}, "mxfp8", (32, 32)),
        ({"quant_method": "fp8", "weight_block_size": None}, "fp8", None),
        ({"quant_method": "fbgemm_fp8"}, "fp8", None),
        ({"quant_method": "mxfp4"}, "mxfp4", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", (128,)),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", None),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", (128,)),
        ({"quant_method": "compressed-tensors", "config_groups": INT4_GROUP}, "int4_g32", (32,)),
        (
            {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups": INT4_GROUP},
            "mxfp4",
            (32,),
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": NVFP4_GROUP}, "nvfp4", (16,)),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", None),
    ],
)
def test_the_weight_format_is_read_from_every_scheme(
    config: dict[str, Any], weight_format: str, block: tuple[int, ...] | None
) -> None:
    found = read(config)
    assert found is not None
    assert (found.weight_format, found.block, found.kv_cache_dtype) == (weight_format, block, None)


@pytest.mark.parametrize(
    ("inside", "beside", "kv"),
    [
        ({"kv_cache_scheme": FP8_KV}, None, "fp8"),
        ({"kv_cache_scheme": "FP8"}, None, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, None, "int8"),
        ({"kv_cache_quant_algo": "NVFP4"}, None, "nvfp4"),
        ({"kv_cache_scheme": None}, None, "none"),
        ({"kv_cache_scheme": None}, {"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({}, {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({}, {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": None}}, "none"),
        ({}, {"quantization": {"quant_algo": "NVFP4"}}, None),
    ],
)
def test_kv_is_quantized_only_where_the_file_says_so(
    inside: dict[str, Any], beside: dict[str, Any] | None, kv: str | None
) -> None:
    found = read({"quant_method": "modelopt", **inside}, beside)
    assert found is not None
    assert found.kv_cache_dtype == kv


def test_a_kv_precision_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadInput, match=r"kv_cache_scheme: .* is not a KV precision"):
        read({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 3, "type": "float"}})


def test_a_scheme_inside_the_decoder_is_found() -> None:
    found = quantization(({}, {"quantization_config": {"quant_method": "mxfp4"}}), None, "config.json")
    assert found is not None
    assert found.weight_format == "mxfp4"


def test_experts_in_another_format_are_parts() -> None:
    found = read({"quant_method": "fp8", "weight_block_size": [128, 128]}, expert_dtype="fp4")
    assert found is not None
    assert [(p.part, p.weight_format) for p in found.parts] == [("experts", "mxfp4")]


def test_mixed_layers_are_folded_into_parts() -> None:
    layers = {
        **{f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "FP8"} for i in range(4)},
        **{f"model.layers.{i}.linear_attn.out_proj": {"quant_algo": "FP8"} for i in range(4)},
        **{f"model.layers.{i}.mlp.down_proj": {"quant_algo": "W4A16_NVFP4"} for i in range(4)},
        "lm_head": {"quant_algo": "FP8"},
    }
    found = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert found is not None
    assert (found.weight_format, [(p.part, p.weight_format) for p in found.parts]) == ("fp8", [("mlp", "nvfp4")])


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"], ("attention", "shared_experts")),
        (["model.layers.0.self_attn*", "model.layers.1.self_attn*"], ("attention",)),
        ([f"model.layers.0.self_attn.{p}_proj" for p in "qkvo"], ("attention",)),
        (["model.layers.0.self_attn.o_proj"], ()),
        (
            [f"model.layers.0.self_attn.{p}" for p in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")],
            tuple(f"attention.{p}" for p in ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")),
        ),
        ([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"], ("mlp",)),
        (["model.layers.0.mlp.gate", "model.layers.0.input_layernorm", "visual", "model.embed_tokens"], ()),
        (["model.layers.0.linear_attn*", "model.layers.0.self_attn.indexer*"], ("indexer", "mixer")),
    ],
)
def test_skipped_modules_are_parts_where_they_matter(names: list[str], parts: tuple[str, ...]) -> None:
    found = read({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": names})
    assert found is not None
    assert found.unquantized == parts
