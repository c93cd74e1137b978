"""docs/claims.md: every statement of the founding documents is there, with a verdict that its figures support."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from benchmarks import claims, claims_operating
from kvplan.cli import app

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "claims.md").read_text()
VERDICTS = {claims.HOLDS, claims.CONDITIONS, claims.FAILS}


@pytest.fixture(scope="module")
def seeds(groundtruth: Path) -> dict[str, Any]:
    """The statements, with exact values."""
    found: dict[str, Any] = yaml.safe_load((groundtruth / "seed_claims.yaml").read_text())
    return found


@pytest.mark.groundtruth
@pytest.mark.parametrize("section", ["claims", "operating_claims", "serving_checklist", "numeric_scenarios"])
def test_every_statement_is_on_the_page(seeds: dict[str, Any], section: str) -> None:
    """By its id, as code."""
    assert [seed["id"] for seed in seeds[section] if f"`{seed['id']}`" not in PAGE] == []


@pytest.mark.groundtruth
def test_figures_and_their_verdicts_are_exact(seeds: dict[str, Any]) -> None:
    """Bytes to the last one, ratios to rounding; what mixes units or baselines does not hold as it is stated."""
    found = {figure.id: figure for figure in claims.figures()}
    stated = {seed["id"]: seed for seed in seeds["claims"]}
    exact = {name: seed.get("bytes", seed.get("ratio")) for name, seed in stated.items()}
    exact["v2-vs-67b"] = stated["mla-vs-mha"]["ratio"]  # the baseline that the statement names
    words = {True: claims.HOLDS, False: claims.FAILS, None: "not stated"}

    assert {name: figure.computed for name, figure in found.items()} == pytest.approx(exact)
    assert {n: f.verdict for n, f in found.items()} == {n: words[seed["holds"]] for n, seed in stated.items()}


@pytest.mark.groundtruth
def test_elements_on_a_rank_are_those_of_the_documents(seeds: dict[str, Any]) -> None:
    """KV heads share out, the latent does not."""
    stated = {row["tp"]: (row["gqa8"], row["mla"]) for row in seeds["tp_sharding"]}

    assert stated == claims.STATED_ELEMENTS
    assert stated == {tp: (claims.elements("gqa8", tp), claims.elements("mla", tp)) for tp in stated}


def test_a_print_that_is_not_the_figure_does_not_hold() -> None:
    """Rounding is allowed, another unit is not."""
    computed = 240 * 2**30
    said = [
        claims.Figure(id="x", stated="", value=value, unit=unit, computed=computed).verdict
        for value, unit in ((240, "GiB"), (258, "GB"), (245, "GB"), (240, "GB"))
    ]

    assert said == [claims.HOLDS, claims.HOLDS, claims.FAILS, claims.FAILS]


@pytest.mark.parametrize("claim", claims_operating.CLAIMS, ids=lambda claim: claim.id)
def test_operating_claims_are_decided(claim: claims_operating.Claim) -> None:
    """A verdict, a computed line that the page shows, and the figures behind it."""
    verdict, computed = claim.decide()

    assert verdict in VERDICTS
    assert f"| {verdict} | {computed} |" in PAGE
    assert claim.figures is None or claim.figures() in PAGE


def commands() -> list[str]:
    """Whole command lines among the checks of the page."""
    checks = [*(figure.check for figure in claims.figures()), *(claim.check for claim in claims_operating.CLAIMS)]
    return sorted({line for check in checks for line in re.findall(r"`kvplan ((?:compare|show|check) [^`]+)`", check)})


@pytest.mark.parametrize("line", [*commands(), claims.CHECK_COMMAND.removeprefix("kvplan ")])
def test_checks_can_be_run(line: str) -> None:
    """What the page tells a reader to type has an answer."""
    done = CliRunner().invoke(app, line.split())

    assert done.exit_code == 0, done.output


def test_numeric_scenarios_are_those_that_validate_runs() -> None:
    """The same ids with the same bounds, and errors on record below them."""
    pytest.importorskip("torch")
    from kvplan.validate.scenarios import SCENARIOS

    table = PAGE.partition("## Numeric scenarios")[2]
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in table.splitlines() if line.startswith("| `")]
    recorded = {row[1]: (row[3], row[4]) for row in rows}

    assert list(recorded) == [scenario.id for scenario in SCENARIOS]
    for scenario in SCENARIOS:
        bound, error = recorded[scenario.id]
        assert bound == (f"{scenario.bound:.0e}" if scenario.bound else "exact")
        assert float(error) <= scenario.bound
