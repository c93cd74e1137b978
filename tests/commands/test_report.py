"""kvplan report: whole documents, the same bytes each time, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.commands.conftest import Run, same_as_screen
from tests.commands.test_fit import GIVEN

TWO = "report latent.yaml grouped.yaml --gpu fast.yaml --gpus 8 --tp 8 --context 32k"
BARE = f"report latent.yaml grouped.yaml --gpu bare.yaml --tp 2 --context 32k {GIVEN.replace('30GiB', '70GiB')}"
"""On a GPU without peaks and with a given budget: nothing in it is an estimate."""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("one", "report latent.yaml --gpu bare.yaml --tp 2 --context 16k " + GIVEN),
        ("too-large", BARE),
        ("caches", "report latent.yaml grouped.yaml --context 4k,32k --kv-dtype fp8 --tp 4"),
    ],
)
@pytest.mark.parametrize("kind", ["table", "markdown"])
def test_document(run: Run, name: str, line: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # the same with matplotlib and without
    shown = run(f"{line} --format {kind}", 100)

    assert shown.status == 0
    same_as_screen(f"report-{name}-{kind}", shown.out)


@pytest.mark.parametrize("suffix", ["md", "html", "json"])
def test_two_runs_give_the_same_bytes(run: Run, suffix: str) -> None:
    first, second = Path(f"a.{suffix}"), Path(f"b.{suffix}")
    for path in (first, second):
        assert run(f"{TWO} -o {path}").status == 0

    assert first.read_bytes() == second.read_bytes()
    assert not re.search(rb"\b20\d\d-\d\d-\d\d\b", first.read_bytes())


def test_a_timestamp_stands_where_it_is_asked_for(run: Run) -> None:
    answer = json.loads(run(f"{TWO} --timestamp --format json").out)

    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", answer["written_at"])
    assert f"Written at {answer['written_at']}." in answer["notes"]


def test_the_command_that_reproduces_a_report_does(run: Run) -> None:
    run(f"{TWO} --engine sglang --kv-dtype fp8 --engine-arg page_size=64 --engine-arg max_running_requests=9 -o a.json")
    first = json.loads(Path("a.json").read_text())
    again = json.loads(run(f"{first['reproduce'].removeprefix('kvplan ')} --format json").out)

    assert shlex.split(first["reproduce"])[:4] == ["kvplan", "report", "latent.yaml", "grouped.yaml"]
    assert "-o" not in first["reproduce"]
    assert again == first


def test_json_holds_all_that_people_see(run: Run) -> None:
    answer = json.loads(run(f"{TWO} --format json").out)
    plans = {plan["scenario"]["model"]: plan for plan in answer["plans"]}

    assert (answer["command"], [*plans]) == ("report", ["latent", "grouped"])
    assert {row["model"] for row in answer["compare"]["rows"]} == {"latent", "grouped"}
    for plan in plans.values():
        assert [c["context"] for c in plan["contexts"]] == [4096, 8192, 16384, 32768]
        assert plan["contexts"][-1]["batch"] == plan["decode"]["batch"] == plan["decode_by_batch"][-1]["batch"]
        assert {item["verdict"] for item in plan["checklist"]} <= {"pass", "warn", "fail"}
        assert [step["change"] for step in plan["sensitivity"]][:2] == ["--tp 16", "--tp 4"]
        assert plan["sources"]["gpu"]["memory_bytes"] == "https://example.com/made-up"


def test_fit_and_report_say_the_same_of_a_plan(run: Run) -> None:
    options = "--gpu fast.yaml --tp 2 --format json"
    (plan,) = json.loads(run(f"report latent.yaml {options} --context 16k").out)["plans"]
    plan["contexts"] = [c for c in plan["contexts"] if c["context"] != 16384]
    others = ",".join(str(c["context"]) for c in plan["contexts"])
    alone = json.loads(run(f"fit latent.yaml {options} --context 16k,{others}").out)

    assert {key: plan[key] for key in alone.keys() - {"command", "version"}} == {
        key: alone[key] for key in alone.keys() - {"command", "version"}
    }


def test_without_matplotlib_the_report_says_so_and_is_complete(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_plots = run(f"{TWO} --format html").out
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    without = run(f"{TWO} --format html").out

    assert "<svg" not in without
    assert "Plots are left out: they need matplotlib" in without
    assert without.count("<table") == with_plots.count("<table")


@pytest.mark.parametrize("option", ["--gpus 8", "--engine sglang", "--max-num-seqs 4", "--engine-arg a=b"])
def test_an_option_that_needs_a_gpu_is_refused_without_one(run: Run, option: str) -> None:
    shown = run(f"report latent.yaml {option}")

    assert (shown.status, shown.out) == (1, "")
    assert shown.err == f"kvplan: {option.partition(' ')[0]}: says how a GPU is used; name it with --gpu\n"


def test_a_model_named_twice_is_reported_once(run: Run) -> None:
    assert len(json.loads(run("report latent.yaml latent.yaml --gpu bare.yaml --format json").out)["plans"]) == 1
