"""Damaged configs give one line or a right answer: never a traceback, never another cache in silence."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.errors import BadInput, KvplanError
from kvplan.hf import import_config, spec_from_config
from kvplan.model import ModelSpec
from tests.hf.seeds import SEEDS, Config

ABSURD: list[Any] = [
    None, -1, 0, 1, True, False, "", "4096", "\x00", 3.5, 1e30, float("nan"), float("inf"), 10**30, 2**40, [], {},
    [None] * 4, [[[[]]]], {"a": {"b": [None]}}, ["full_attention"] * 4, "LLLG", [0, 1, 0, 1],
]  # fmt: skip


def _paths(node: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(node, dict):
        return []
    return [p for k, v in node.items() for p in ((*path, k), *_paths(v, (*path, k)))]


SPOTS = [(name, path) for name, seed in SEEDS.items() for path in _paths(seed.config)]


def _parent(config: Config, path: tuple[str, ...]) -> Config:
    for key in path[:-1]:
        config = config[key]
    return config


def read(config: Config) -> ModelSpec:
    return spec_from_config(config, name="seed", source="config.json")


def mixers(spec: ModelSpec) -> list[tuple[str, Any]]:
    return [(g.layers, g.attention) for g in spec.layer_groups]


def one_line_or_spec(config: Any) -> ModelSpec | None:
    try:
        spec = read(config)
    except KvplanError as error:
        assert str(error).startswith("config.json: ")
        assert "\n" not in str(error)
        return None
    assert all(t.heads > 0 and t.dim > 0 for _, a in spec.mixers() for t in a.tensors())
    return spec


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(spots=st.lists(st.tuples(st.sampled_from(SPOTS), st.sampled_from(ABSURD)), min_size=1, max_size=3))
def test_absurd_values_give_one_line_or_a_spec(spots: list[tuple[tuple[str, tuple[str, ...]], Any]]) -> None:
    (name, _), _ = spots[0]
    config = deepcopy(SEEDS[name].config)
    for (other, path), value in spots:
        if other == name:
            parent = _parent(config, path) if len(path) == 1 or isinstance(config.get(path[0]), dict) else config
            if isinstance(parent, dict):
                parent[path[-1]] = value
    one_line_or_spec(config)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=2000)
@given(spot=st.sampled_from(SPOTS), value=JSON)
def test_nested_garbage_gives_one_line_or_a_spec(spot: tuple[str, tuple[str, ...]], value: Any) -> None:
    config = deepcopy(SEEDS[spot[0]].config)
    _parent(config, spot[1])[spot[1][-1]] = value
    one_line_or_spec(config)


NOT_OF_THE_CACHE = {
    "model_type",
    "architectures",
    "torch_dtype",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
}


@pytest.mark.parametrize(("name", "path"), [s for s in SPOTS if s[1][-1] not in NOT_OF_THE_CACHE])
def test_a_renamed_key_never_changes_the_cache_in_silence(name: str, path: tuple[str, ...]) -> None:
    config = deepcopy(SEEDS[name].config)
    parent = _parent(config, path)
    parent[f"{path[-1]}_x"] = parent.pop(path[-1])
    spec = one_line_or_spec(config)
    if spec is not None:
        sized = [n for n in spec.notes if "absent" in n or "is stated" in n]
        assert mixers(spec) == mixers(read(SEEDS[name].config)) or sized


BROKEN_FILES = {
    "empty": b"", "cut": b"{", "list": b"[]", "null": b"null", "number": b"3", "not UTF-8": b"\xff\xfe{}",
    "unclosed": b'{"model_type": "llama"', "deep lists": b"[" * 100_000, "deep objects": b'{"a":' * 50_000,
}  # fmt: skip


@pytest.mark.parametrize("content", BROKEN_FILES.values(), ids=BROKEN_FILES)
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"config\.json") as error:
        import_config(file)
    assert "\n" not in str(error.value)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as handle:
        handle.truncate(100 * 2**20)
    with pytest.raises(BadInput, match="104857600 bytes"):
        import_config(file)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no such file; give a config\.json or the directory"):
        import_config(tmp_path)


def test_every_seed_survives_the_journey_through_a_file(tmp_path: Path) -> None:
    for name, seed in SEEDS.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(seed.config))
        assert import_config(file).layer_groups == read(seed.config).layer_groups
