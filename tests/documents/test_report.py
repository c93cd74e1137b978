"""kvplan.documents.report: the sections, and that a report agrees with itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvplan.documents.report import Colophon, Study, of_plans, study
from kvplan.plan import Scenario
from kvplan.roofline import decode_step
from kvplan.table import Document, Quantity, Table
from tests import small

LATENT = Scenario(model=small.LATENT, gpu=small.GPU, tp=2, context=16384)
GROUPED = replace(LATENT, model=small.GROUPED)
COLOPHON = Colophon("kvplan report")


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    return [study(LATENT), study(GROUPED)]


def titles(document: Document) -> list[str]:
    return [section.title for section in document.sections]


def table(document: Document, title: str) -> Table:
    return next(t for section in document.parts for t in section.tables if t.title == title)


def column(shown: Table, key: str) -> Sequence[object]:
    place = [c.key for c in shown.columns].index(key)
    return [row[place] for row in shown.rows]


def test_one_model_has_its_sections_under_plain_titles(studies: list[Study]) -> None:
    assert titles(of_plans(studies[:1], COLOPHON)) == [
        "Cache of one session", "Memory of one GPU", "Capacity", "Flags for vllm", "Decode speed", "Serving checklist",
        "What one notch changes", "Sources", "Reproduce",
    ]  # fmt: skip


def test_several_models_stand_side_by_side_and_then_each_alone(studies: list[Study]) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    document = of_plans(studies, COLOPHON)

    assert titles(document)[:3] == ["Cache of one session", "Side by side", "latent: memory of one GPU"]
    assert titles(document)[7:9] == ["latent: what one notch changes", "grouped: memory of one GPU"]
    assert [f.title for f in document.sections[1].figures] == [
        "Memory of one GPU", "Sessions at once against context", "Decode on the roofline of one fast",
    ]  # fmt: skip
    assert not [f for section in document.sections[2:] for f in section.figures]


def test_the_answer_has_a_column_per_model_and_agrees_with_the_sections(studies: list[Study]) -> None:
    answer = of_plans(studies, COLOPHON).tables[0]
    sessions = next(row[1:] for row in answer.rows if row[0] == "Sessions at once")

    assert [c.title for c in answer.columns] == ["Figure", "latent", "grouped"]
    assert sessions == tuple(Quantity(s.plan.batch, "count") for s in studies)


def test_the_last_rows_by_context_and_by_batch_are_the_plan(studies: list[Study]) -> None:
    p = studies[0].plan
    document = of_plans(studies[:1], COLOPHON)
    by_context = table(document, "Sessions at each maximum length")
    by_batch = table(document, "One decode step by batch")

    assert column(by_context, "context") == [2048, 4096, 8192, 16384]
    assert column(by_context, "batch")[-1] == column(by_batch, "batch")[-1] == p.batch
    assert p.step
    assert column(by_batch, "step_s")[-1] == p.step.seconds


def test_a_step_by_batch_serves_all_replicas() -> None:
    found = study(replace(LATENT, tp=1, dp=2, ep=2))
    d = found.plan.deployment

    for batch, step in found.steps:
        assert step == decode_step(d, found.plan.layout.kv_format, batch // 2)


def test_the_first_notch_is_the_plan_itself(studies: list[Study]) -> None:
    shown = table(of_plans(studies[:1], COLOPHON), "What one notch changes")

    assert column(shown, "change")[0] == "as planned"
    assert column(shown, "sessions_ratio")[0] == 1
    assert column(shown, "sessions")[0] == studies[0].plan.batch


def test_the_longest_context_falls_as_sessions_share_the_pool(studies: list[Study]) -> None:
    lengths = column(table(of_plans(studies[:1], COLOPHON), "Longest context by sessions"), "max_context_tokens")

    assert lengths[0] == 16384
    assert lengths == sorted(lengths, reverse=True)  # type: ignore[type-var]


def test_what_does_not_fit_has_its_shortfall_and_its_remedies() -> None:
    document = of_plans([study(replace(GROUPED, given_bytes={"weights": 72 * small.GIB}))], COLOPHON)

    assert "does not fit at 16k tokens" in document.lead
    assert "are missing" in document.sections[1].text[0]
    assert "What would make it fit, cheapest first" in [t.title for t in document.sections[1].tables]
    assert "Flags for vllm" not in titles(document)
    assert document.payload["plans"][0]["remedies"]


def test_a_given_pool_makes_no_budget() -> None:
    document = of_plans([study(replace(GROUPED, kv_pool_bytes=10 * small.GIB))], COLOPHON)

    assert document.sections[1].text == ["The pool of 10.00 GiB on each GPU was given, so no budget is made."]
    assert document.sections[1].tables == []


def test_unknown_peaks_are_said_and_leave_no_speed() -> None:
    document = of_plans([study(replace(LATENT, gpu=small.BARE_GPU))], COLOPHON)
    speed = next(section for section in document.sections if section.title == "Decode speed")

    assert speed.text == ["The catalogue has no bandwidth or no arithmetic rate of bare, so no speed is stated."]
    assert (speed.tables, speed.figures) == ([], [])


def test_notes_that_one_model_has_bear_its_name() -> None:
    replicas = replace(GROUPED, tp=1, dp=2)
    notes = of_plans([study(replace(LATENT, tp=1)), study(replicas)], COLOPHON).notes

    assert any(note.startswith("grouped: 2 replicas") for note in notes)
