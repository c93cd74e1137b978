"""Arguments as Python prints them become values; what is cut or no literal never becomes a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.logs.arguments import parse_arguments, parse_value

SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text("abcXYZ 019_-/.,:{}()[]='\"", max_size=12)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_printed_dict_is_read_back(arguments: dict[str, Any]) -> None:
    assert parse_arguments(repr(arguments)[1:] + "\\n more text") == arguments


@given(st.dictionaries(NAMES, SCALARS, max_size=5), st.data())
def test_a_cut_dict_gives_no_value_that_was_not_printed(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = repr(arguments)[1:]
    cut = parse_arguments(text[: data.draw(st.integers(0, len(text) - 1))])

    assert cut.items() <= arguments.items()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.95", 0.95),
        ("1e-05", 1e-5),
        ("-1", -1),
        ("torch.bfloat16", "torch.bfloat16"),
        ("<CUDAGraphMode.NONE: 0>", "<CUDAGraphMode.NONE: 0>"),
        ("SpeculativeConfig(method='mtp', num_spec_tokens=3)", {"method": "mtp", "num_spec_tokens": 3}),
        ("[LoRAModulePath(name='x', path='y')]", [{"name": "x", "path": "y"}]),
        ("{'a': {'b': [1, 2.5, None]}}", {"a": {"b": [1, 2.5, None]}}),
        ('{"level":3,"sizes":[]}', {"level": 3, "sizes": []}),
        ("{}", {}),
        ("'it\\'s'", "it's"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_value_is_read_as_what_it_prints(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_a_list_without_an_end_gives_up_its_last_value_only_if_that_may_be_cut() -> None:
    assert parse_arguments("model='x', max_seq_len=1310", closes=False) == {"model": "x"}
    assert parse_arguments("model='x', enforce_eager=True", closes=False) == {"model": "x", "enforce_eager": True}
    assert parse_arguments("a=1, config={'b': [1, 2]", closes=False) == {"a": 1}


def test_pydantic_separates_by_blanks() -> None:
    text = "model='a b' tokenizer=None kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.9) max_num_tokens=8192 "

    assert parse_arguments(text, separator=" ", closes=False) == {
        "model": "a b",
        "tokenizer": None,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.9},
        "max_num_tokens": 8192,
    }


def test_brackets_without_end_stay_text() -> None:
    assert parse_value("(" * 10_000) == "(" * 10_000
    assert parse_value("[" * 500 + "]" * 500) is not None
