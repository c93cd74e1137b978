"""The model is found by its name, by its file's geometry, by its class and its pool; or the log is asked to name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import BadInput, UnknownName
from kvplan.identify import model_of
from kvplan.identify.shape import shape_of
from kvplan.logs import Observed, Pool, Reading
from kvplan.parallel import Parallelism
from kvplan.weights import rank_bytes


def _log(model: str | None = None, *, engine: str = "vllm", **fields: Any) -> Observed:
    return Observed(engine=engine, source="a.log", model=model, **fields)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("/path/to/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("Qwen/Qwen2.5-32B-Instruct-FP8", "qwen2.5-32b"),
        ("/models/qwen2-7b-instruct-q4_k_m.gguf", "qwen2-7b"),
        ("/hub/models--deepseek-ai--DeepSeek-V3/snapshots/abc", "deepseek-v3"),
        ("DeepSeek R1", "deepseek-r1"),
        ("deepseek-v3", "deepseek-v3"),
    ],
)
def test_by_its_name(text: str, name: str) -> None:
    assert model_of(_log(text), None)[0].name == name


def test_the_users_model_goes_before_the_logs() -> None:
    assert model_of(_log("Qwen/Qwen3-8B"), "llama-3-8b")[0].name == "llama-3-8b"


def test_a_folder_of_this_machine_is_read(tmp_path: Path) -> None:
    config = (
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, '
        '"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000, '
        '"max_position_embeddings": 2048, "torch_dtype": "bfloat16"}'
    )
    (tmp_path / "config.json").write_text(config)

    assert model_of(_log(str(tmp_path)), None)[0].num_hidden_layers == 3


def test_without_a_name_the_error_asks_for_the_model() -> None:
    with pytest.raises(BadInput, match=r"^a\.log: names no model; say which: kvplan reconcile LOG MODEL$"):
        model_of(_log(), None)


@pytest.mark.parametrize("text", ["/data/my-own-model", "my-own-model", "a/b/c", "x" * 300, "/x\0y"])
def test_a_name_that_nothing_bundled_has_is_asked_for_and_not_fetched(text: str) -> None:
    with pytest.raises(UnknownName, match=r"^a\.log: the log's model '.*' is not bundled; say which it is"):
        model_of(_log(text), None)


QWEN3_8B = {
    "general.architecture": "qwen3",
    "qwen3.block_count": 36,
    "qwen3.embedding_length": 4096,
    "qwen3.attention.head_count": 32,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "n_lora_kv": 0,
}


def _gguf(model: str | None = None, **metadata: Any) -> Observed:
    return _log(model, engine="llama.cpp", metadata={**QWEN3_8B, **metadata})


def test_by_the_geometry_of_its_file_with_all_models_of_that_cache_named() -> None:
    spec, notes = model_of(_gguf(), None)

    assert spec.name == "qwen3-8b"
    assert notes == ("model by 36 layers, width 4096 of the file: qwen3-8b; the cache of qwen3-vl-8b is the same",)


def test_print_info_says_the_same_as_the_file() -> None:
    metadata = {"n_layer": 36, "n_embd": 4096, "n_head": 32, "n_head_kv": 8, "n_embd_head_k": 128, "n_expert": 0}

    assert model_of(_log(engine="llama.cpp", metadata=metadata), None)[0].name == "qwen3-8b"


def test_a_name_that_the_geometry_contradicts_does_not_count() -> None:
    assert model_of(_gguf("DeepSeek R1"), None)[0].name == "qwen3-8b"


def test_a_geometry_of_several_caches_is_asked_for() -> None:
    metadata = {"general.architecture": "llama", "llama.block_count": 32, "llama.embedding_length": 4096}

    with pytest.raises(BadInput, match=r"32 layers, width 4096 of the file fit .*llama-3\.1-8b.*; say which"):
        model_of(_log(engine="llama.cpp", metadata=metadata), None)


def test_a_geometry_that_no_model_has_is_asked_for() -> None:
    with pytest.raises(BadInput, match="names no model"):
        model_of(_gguf(**{"qwen3.block_count": 37}), None)


def test_too_few_facts_find_nothing() -> None:
    with pytest.raises(BadInput, match="names no model"):
        model_of(_log(engine="llama.cpp", metadata={"n_layer": 36}), None)


def test_lists_over_layers_and_cut_lists_are_sets_of_values() -> None:
    shape = shape_of(
        {"general.architecture": "x", "x.attention.head_count_kv": [0, 8, 0, 8, "..."], "x.block_count": 4}
    )

    assert shape.facts == {"num_key_value_heads": {8}, "num_hidden_layers": {4}}


def _sglang(architecture: str, gib: float, slots: int, dtype: str = "torch.bfloat16") -> Observed:
    half = Reading("k_bytes", int(gib / 2 * 2**30), 0.01 * 2**30)
    pool = Pool(kind="kv", line=1, slots=slots, parts={"k": half, "v": half}, types={"k": dtype, "v": dtype})
    return _log(engine="sglang", readings=(Reading("architecture", architecture),), pools=(pool,))


@pytest.mark.parametrize(
    ("architecture", "gib", "slots", "name"),
    [
        ("Qwen3MoeForCausalLM", 152.88, 1_669_816, "qwen3-30b-a3b"),
        ("Qwen3MoeForCausalLM", 16.46, 367_404, "qwen3-235b-a22b"),
        ("KimiK25ForConditionalGeneration", 160.63, 2_454_421, "kimi-k2.5"),
    ],
    ids=["one rank", "four ranks", "a class of its own name"],
)
def test_by_its_class_and_what_a_token_costs(architecture: str, gib: float, slots: int, name: str) -> None:
    spec, notes = model_of(_sglang(architecture, gib, slots), None)

    assert spec.name == name
    assert notes[0].startswith(f"model by its class {architecture} and its pool: {name}")


def test_a_pool_that_no_model_of_the_class_has_finds_nothing() -> None:
    with pytest.raises(BadInput, match="names no model"):
        model_of(_sglang("Qwen3MoeForCausalLM", 100.0, 123_457), None)


BF16 = rank_bytes(model_of(_log("Qwen/Qwen3-32B"), None)[0], Parallelism())


@pytest.mark.parametrize(
    ("text", "flags", "weight_format", "share"),
    [
        ("Qwen/Qwen3-32B-FP8", {}, "fp8", 0.5),
        ("Qwen/Qwen3-32B-AWQ", {}, "int4", 0.26),
        ("nvidia/Qwen3-32B-NVFP4", {}, "nvfp4", 0.28),
        ("org/Qwen3-32B-GPTQ-Int8", {}, "int8", 0.5),
        ("RedHatAI/Qwen3-32B-quantized.w4a16", {}, "int4", 0.26),
        ("Qwen/Qwen3-32B", {"quantization": "gptq_marlin"}, "int4", 0.26),
        ("Qwen/Qwen3-32B-FP8", {"quantization": "compressed-tensors"}, "fp8", 0.5),
    ],
)
def test_weights_of_a_quantized_copy(text: str, flags: dict[str, str], weight_format: str, share: float) -> None:
    spec, notes = model_of(_log(text, flags=flags), None)

    assert spec.quantization is not None
    assert spec.quantization.weight_format == weight_format
    assert rank_bytes(spec, Parallelism()) / BF16 == pytest.approx(share, abs=0.05)
    assert notes[-1].startswith(f"weights in {weight_format}, for the log says ")


@pytest.mark.parametrize("text", ["deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-32B"])
def test_a_name_without_a_precision_leaves_the_bundled_weights(text: str) -> None:
    spec, notes = model_of(_log(text, flags={"quantization": "compressed-tensors"}), None)

    assert notes == ()
    assert (spec.quantization is None) is (spec.name == "qwen3-32b")


def test_a_widened_copy_has_no_quantization() -> None:
    spec, notes = model_of(_log("org/DeepSeek-V3-BF16"), None)

    assert spec.quantization is None
    assert "bundled in fp8" in notes[0]
