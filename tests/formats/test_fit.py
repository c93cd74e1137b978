"""kvplan.formats._fit: nothing is lost, and nothing is too wide that could be narrower."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvplan.formats._cells import TextColumn
from kvplan.formats._fit import GAP, fit

WORDS = st.text("abc ", max_size=30).map(str.strip)


@st.composite
def columns(draw: st.DrawFn) -> list[TextColumn]:
    rows = draw(st.integers(0, 3))
    cells = st.lists(WORDS, min_size=rows, max_size=rows).map(tuple)
    column = st.builds(TextColumn, WORDS, st.sampled_from(["", "GiB", "tokens"]), cells, st.booleans())
    drawn = draw(st.lists(column, min_size=1, max_size=9))
    return [TextColumn(f"{n} {c.title}", c.unit, c.cells, c.is_number) for n, c in enumerate(drawn)]


@given(columns(), st.integers(0, 3), st.integers(40, 200))
def test_every_column_is_said_once_or_stands_in_one_part(drawn: list[TextColumn], index: int, width: int) -> None:
    said_once, parts = fit(drawn, index, width)
    lead = [column for column in drawn[:index] if column not in said_once]
    shown = [column for part in parts for column in part.columns[len(lead) :]]

    assert all(list(part.columns[: len(lead)]) == lead for part in parts)
    assert sorted([*said_once, *lead, *shown], key=drawn.index) == drawn


@given(columns(), st.integers(0, 3), st.integers(40, 200))
def test_a_part_wider_than_the_screen_has_only_one_column_beside_its_index(
    drawn: list[TextColumn], index: int, width: int
) -> None:
    _, parts = fit(drawn, index, width)

    for part in parts:
        total = sum(part.widths) + GAP * (len(part.widths) - 1)
        assert total <= width or len(part.columns) <= index + 1


@given(columns(), st.integers(150, 200))
def test_numbers_are_never_broken(drawn: list[TextColumn], width: int) -> None:
    _, parts = fit(drawn, 1, width)

    for part in parts:
        for column, given_width in zip(part.columns, part.widths, strict=True):
            assert not column.is_number or all(len(cell) <= given_width for cell in column.cells)


def test_parts_are_even_rather_than_one_full_and_one_almost_empty() -> None:
    drawn = [TextColumn("model", "", ("m", "n"), is_number=False)]
    drawn += [TextColumn(f"size {number}", "GiB", ("1234567890", "1"), is_number=True) for number in range(6)]

    _, parts = fit(drawn, 1, 70)

    assert [len(part.columns) for part in parts] == [4, 4]


def test_of_the_index_only_the_first_column_stays_where_all_its_cells_agree() -> None:
    drawn = [TextColumn(name, "", ("same", "same"), is_number=False) for name in ("model", "KV dtype")]
    drawn.append(TextColumn("size", "", ("1" * 20, "2"), is_number=True))

    said_once, parts = fit(drawn, 2, 30)

    assert [column.title for column in said_once] == ["KV dtype"]
    assert [[column.title for column in part.columns] for part in parts] == [["model", "size"]]
