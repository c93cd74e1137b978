"""kvplan show: whole screens."""

from __future__ import annotations

import json

import pytest

from tests.commands.conftest import Run, same_as_screen


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("what", ["latent.yaml", "windowed.yaml", "fast.yaml"])
def test_screen(run: Run, what: str, width: int) -> None:
    shown = run(f"show {what}", width)

    assert shown.status == 0
    same_as_screen(f"show-{what.removesuffix('.yaml')}-{width}", shown.out)


@pytest.mark.parametrize("what", ["models", "gpus", "engines", "formats"])
def test_a_list_has_a_row_for_each_of_its_json(run: Run, what: str) -> None:
    rows = json.loads(run(f"show {what} --format json").out)[what]
    lines = run(f"show {what}", 160).out.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("─"))

    assert len(lines[rule + 1 :]) == len(rows)


def test_sources_are_links_in_html(run: Run) -> None:
    assert '<a href="https://example.com/made-up">' in run("show fast.yaml --format html").out


def test_an_unknown_name_is_one_line(run: Run) -> None:
    shown = run("show h2000")

    assert (shown.status, shown.out, shown.err.count("\n")) == (1, "", 1)
