from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.catalog import GPU_FOLDER
from kvplan.errors import BadInput
from kvplan.gpu import GpuSpec
from kvplan.model import ModelSpec
from kvplan.plain import from_plain, to_plain
from kvplan.specfile import parse_yaml, read_yaml, write_yaml
from kvplan.strict_yaml import dump, parse

MODEL = b"""
name: toy
source: a test
model_type: toy
torch_dtype: bfloat16
hidden_size: 64
vocab_size: 100
max_position_embeddings: 4096
layer_groups:
  - layers: 0-2
    attention:
      - kind: mla
        num_attention_heads: 8
        kv_lora_rank: 512
        qk_rope_head_dim: 64
        qk_nope_head_dim: 128
        v_head_dim: 128
    mlp:
      kind: dense
      intermediate_size: 128
  - layers: '3'
    attention:
      - kind: gqa
        num_attention_heads: 8
        num_key_value_heads: 1
        head_dim: 8
        sliding_window: 128
    mlp:
      kind: moe
      num_experts: 8
      num_experts_per_tok: 2
      moe_intermediate_size: 32
hub_ids: [org/toy, org/toy-fp8]
rope_scaling:
  rope_type: yarn
  factor: 4
"""
H100 = (GPU_FOLDER / "h100.yaml").read_bytes()


@dataclass(frozen=True, slots=True)
class Leaf:
    size: int
    rate: float = 1.0
    name: str = "leaf"
    on: bool = False
    mode: Literal["a", "b"] = "a"


def read(text: str) -> Leaf:
    return parse_yaml(text.encode(), Leaf, "f.yaml")


def test_a_model_is_read_with_its_unions() -> None:
    spec = parse_yaml(MODEL, ModelSpec, "toy.yaml")
    assert spec.layers_by_kind() == {"mla": 3, "sliding_attention": 1}
    assert spec.hub_ids == ("org/toy", "org/toy-fp8")
    assert spec.rope_scaling is not None
    assert spec.rope_scaling.factor == 4.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("size: 1\nsise: 2", "f.yaml: unknown key 'sise'; did you mean size?"),
        ("rate: 2.0", "f.yaml: size: is missing"),
        ("size: true", "f.yaml: size: True should be a valid integer"),
        ("size: 1.5", "f.yaml: size: 1.5 should be a valid integer"),
        ("size: '1'", "f.yaml: size: '1' should be a valid integer"),
        ("size: ", "f.yaml: size: nothing should be a valid integer"),
        ("size: [1]", "f.yaml: size: a list should be a valid integer"),
        ("size: -1", "f.yaml: size: -1 is outside 0..2**62"),
        ("size: 99999999999999999999", "f.yaml: size: 99999999999999999999 is outside 0..2**62"),
        ("size: 1\nrate: -1.0", "f.yaml: rate: -1.0 is outside 0..2**62"),
        ("size: 1\nname: 3", "f.yaml: name: 3 should be a valid string"),
        ("size: 1\non: 1", "f.yaml: on: 1 should be a valid boolean"),
        ("size: 1\nmode: c", "f.yaml: mode: 'c' should be 'a' or 'b'"),
        ("[1]", "f.yaml: holds a list; it should map keys such as size, rate, name"),
        ("", "f.yaml: holds nothing; it should map keys such as size, rate, name"),
        ("5", "f.yaml: holds 5; it should map keys such as size, rate, name"),
    ],
)
def test_one_line_names_file_key_and_value(text: str, says: str) -> None:
    with pytest.raises(BadInput) as error:
        read(text)
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "kv_lora_rank:",
            "kv_lora_rnk:",
            "layer_groups[0].attention[0]: unknown key 'kv_lora_rnk'; did you mean kv_lora_rank",
        ),
        ("kind: mla", "kind: mlla", "layer_groups[0].attention[0]: unknown kind 'mlla'; did you mean mla"),
        ("kind: dense\n      ", "", "layer_groups[0].mlp.kind: is missing; one of dense, moe"),
        ("kind: dense", "kind: [dense]", "layer_groups[0].mlp.kind: is missing; one of dense, moe"),
        (
            "kv_lora_rank: 512",
            "kv_lora_rank: x",
            "layer_groups[0].attention[0].kv_lora_rank: 'x' should be a valid integer",
        ),
        ("        v_head_dim: 128\n", "", "layer_groups[0].attention[0].v_head_dim: is missing"),
        ("head_dim: 8", "head_dim: -8", "layer_groups[1].attention[0].head_dim: -8 is outside 0..2**62"),
        ("factor: 4", "factor: four", "rope_scaling.factor: 'four' should be a valid number"),
        ("[org/toy, org/toy-fp8]", "[org/toy, 5]", "hub_ids[1]: 5 should be a valid string"),
        ("[org/toy, org/toy-fp8]", "org/toy", "hub_ids: 'org/toy' should be a valid array"),
        ("'3'", "'4'", "toy: layer_groups must name each layer once; layer 3 in none"),
    ],
)
def test_one_line_names_the_path_inside_a_model(old: str, new: str, says: str) -> None:
    text = MODEL.decode().replace(old, new, 1)
    assert text != MODEL.decode()
    with pytest.raises(BadInput) as error:
        parse_yaml(text.encode(), ModelSpec, "toy.yaml")
    assert str(error.value).startswith(f"toy.yaml: {says}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("data", "type_"), [(MODEL, ModelSpec), (H100, GpuSpec)])
def test_what_was_written_reads_back_equal(data: bytes, type_: type, tmp_path: Path) -> None:
    spec = parse_yaml(data, type_, "first")
    write_yaml(spec, tmp_path / "again.yaml")
    assert read_yaml(tmp_path / "again.yaml", type_) == spec


def test_a_model_is_written_for_people(tmp_path: Path) -> None:
    write_yaml(parse_yaml(MODEL, ModelSpec, "toy.yaml"), tmp_path / "toy.yaml")
    expected = MODEL.decode().lstrip().replace("factor: 4", "factor: 4.0")
    assert (tmp_path / "toy.yaml").read_text() == expected


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"toy.yaml: cannot be written: No such file"):
        write_yaml(parse_yaml(MODEL, ModelSpec, "toy.yaml"), tmp_path / "absent" / "toy.yaml")


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def nodes(data: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of nested dicts and lists."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [(data, key) for key, _ in pairs] + [node for _, inner in list(pairs) for node in nodes(inner)]


@st.composite
def altered_trees(draw: st.DrawFn, original: bytes) -> bytes:
    data = parse(original, "original")
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(nodes(data) or [({"": 0}, "")]))
        action = draw(st.sampled_from(["drop", "junk", "rename", "negate", "swap"]))
        value = container[key]
        if action == "drop":
            del container[key]
        elif action == "rename" and isinstance(container, dict):
            container[draw(st.text(max_size=8))] = container.pop(key)
        elif action == "negate" and isinstance(value, int | float):
            container[key] = -value * draw(st.sampled_from([1, 10**12, 10**30]))
        elif action == "swap":
            container[key] = copy.deepcopy(draw(st.sampled_from([c[k] for c, k in nodes(data)])))
        else:
            container[key] = draw(JUNK)
    return dump(data).encode()


@st.composite
def altered_bytes(draw: st.DrawFn, original: bytes) -> bytes:
    start = draw(st.integers(0, len(original)))
    length = draw(st.integers(0, 40))
    return original[:start] + draw(st.binary(max_size=8)) + original[start + length :]


def check_right_or_one_line(data: bytes, type_: type) -> None:
    try:
        spec = parse_yaml(data, type_, "f.yaml")
    except BadInput as error:
        assert str(error).startswith("f.yaml: ")
    else:
        assert from_plain(type_, json.loads(json.dumps(to_plain(spec)))) == spec


@given(altered_trees(H100) | altered_bytes(H100))
@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_an_altered_gpu_is_right_or_one_line(data: bytes) -> None:
    check_right_or_one_line(data, GpuSpec)


@given(altered_trees(MODEL) | altered_bytes(MODEL))
@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_an_altered_model_is_right_or_one_line(data: bytes) -> None:
    check_right_or_one_line(data, ModelSpec)
