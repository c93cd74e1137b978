from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.model import ModelSpec
from kvplan.plain import field_types, from_plain, schema, tagged, to_plain, union_members


@dataclass(frozen=True, slots=True)
class Circle:
    radius: float
    kind: Literal["circle"] = "circle"


@dataclass(frozen=True, slots=True)
class Box:
    sides: tuple[int, int]
    kind: Literal["box"] = "box"
    inner: Circle | None = None


Shape = Circle | Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    name: str
    shapes: tuple[Shape, ...] = ()
    best: Shape | None = None
    size: int | str = 0
    named: Mapping[str, Circle] = field(default_factory=dict)


CIRCLES = st.builds(Circle, st.floats(0, 9))
SHAPES = CIRCLES | st.builds(Box, st.tuples(st.integers(), st.integers()), inner=st.none() | CIRCLES)
DRAWINGS = st.builds(
    Drawing,
    name=st.text(),
    shapes=st.lists(SHAPES).map(tuple),
    best=st.none() | SHAPES,
    size=st.integers() | st.text(),
    named=st.dictionaries(st.text(), CIRCLES),
)


@given(DRAWINGS, st.booleans())
def test_json_brings_a_dataclass_back_with_or_without_its_defaults(drawing: Drawing, defaults: bool) -> None:
    assert from_plain(Drawing, json.loads(json.dumps(to_plain(drawing, defaults=defaults)))) == drawing


def test_fields_at_their_default_are_left_out_but_the_tag_stays() -> None:
    drawing = Drawing(name="d", shapes=(Box((1, 2)), Circle(1.0)))
    assert to_plain(drawing, defaults=False) == {
        "name": "d",
        "shapes": [{"sides": [1, 2], "kind": "box"}, {"radius": 1.0, "kind": "circle"}],
    }


@pytest.mark.parametrize(
    "data",
    [{}, {"name": "d", "colour": 1}, {"name": "d", "best": {"kind": "star"}}, {"name": "d", "best": {"radius": 1}}, []],
)
def test_data_of_another_shape_raises(data: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_plain(Drawing, data)


def test_the_tag_finds_the_member_of_a_union() -> None:
    assert tagged(union_members(field_types(Drawing)["best"])) == {"circle": Circle, "box": Box}
    assert tagged(union_members(field_types(Box)["inner"])) == {}


def test_the_schema_names_every_dataclass_inside_and_is_the_same_in_every_run() -> None:
    assert schema(Drawing).splitlines() == [
        "Box(sides: tuple[int, int], kind: Literal['box'] = 'box', inner: Circle | None = None)",
        "Circle(radius: float, kind: Literal['circle'] = 'circle')",
        "Drawing(name: str, shapes: tuple[Shape, ...] = (), best: Shape | None = None, size: int | str = 0, "
        "named: Mapping[str, Circle])",
    ]
    assert " at 0x" not in schema(ModelSpec)
    assert "MultiHeadLatentAttention(" in schema(ModelSpec)
