from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import BadInput
from kvplan.strict_yaml import MAX_DEPTH, dump, parse

SCALARS = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20) | st.sampled_from(
    [
        "",
        "~",
        "null",
        "true",
        "no",
        "1e5",
        "010",
        "1_000",
        "0x1f",
        ".5",
        "-",
        "2024-01-01",
        "12:30",
        ".nan",
        "- a",
        "a: b",
    ]
)
DATA = st.recursive(
    SCALARS | TEXT, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5), max_leaves=20
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3.35e12", 3.35e12),
        ("989e12", 989e12),
        ("85_028_896_768", 85028896768),
        ("-5", -5),
        ("no", "no"),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("12:30", "12:30"),
        ("'5'", "5"),
        ("~", None),
        ("True", True),
        ("[a, {b: 1}]", ["a", {"b": 1}]),
        ("", None),
        ("\ufeffa: é", {"a": "é"}),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert parse(text.encode(), "f") == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: 1\nb: 2\na: 3", "f: line 3: key 'a' stands twice"),
        (b"a: &x 1\nb: *x", "line 1: anchors, aliases, tags"),
        (b"!!python/name:os.system a", "anchors, aliases, tags"),
        (b"a: !!int '3'", "anchors, aliases, tags"),
        (b"a: 1\n--- b", "second document"),
        (b"1: a", "key '1' is not text"),
        (b"[a]: b", "is not text"),
        (b"a: .nan", ".nan is not a finite number"),
        (b"a: -.inf", "-.inf is not a finite number"),
        (b"a: 1e999", "1e999 is out of range"),
        (b"a: " + b"9" * 5000, "is out of range"),
        (b"\xff\xfe", "byte 0 is not UTF-8 text"),
        (b"a: [1", "is not YAML"),
        (b"a: b: c", "is not YAML"),
        (b"a: \x00", "is not YAML"),
        (b"[" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
        (b"[" * 100_000, "is not YAML"),
        (b"- " * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
        (b"{a: " * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_what_a_spec_does_not_need_is_refused_in_one_line(text: bytes, says: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(text, "f")
    message = str(error.value)
    assert message.startswith("f: ")
    assert says in message
    assert "\n" not in message


@given(DATA)
def test_what_was_dumped_reads_back_equal_and_of_the_same_types(data: object) -> None:
    again = parse(dump(data).encode(), "f")
    assert again == data
    assert repr(again) == repr(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_one_line(data: bytes) -> None:
    try:
        parse(data, "f")
    except BadInput as error:
        assert str(error).startswith("f: ")


def test_short_lists_stand_on_one_line_and_long_ones_do_not() -> None:
    text = dump({"shape": [1, 2, 3], "ids": ["x" * 50, "y" * 50], "groups": [{"a": 1}]})
    assert text == f"shape: [1, 2, 3]\nids:\n  - {'x' * 50}\n  - {'y' * 50}\ngroups:\n  - a: 1\n"
