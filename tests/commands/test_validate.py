"""`kvplan validate` from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan import validate  # noqa: E402
from kvplan.catalog import dump_model  # noqa: E402
from kvplan.cli import main  # noqa: E402
from kvplan.validate import run  # noqa: E402
from kvplan.validate.result import NumericCheck  # noqa: E402
from tests.validate.conftest import shrink, small_mla  # noqa: E402


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small spec on disk, and a second's worth of everything."""
    shrink(monkeypatch)
    dump_model(small_mla(), tmp_path / "small.yaml")
    return str(tmp_path / "small.yaml")


def exit_code(*arguments: str) -> int:
    """Run the command line."""
    with pytest.raises(SystemExit) as exit_:
        main(["validate", *arguments])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert exit_code(*arguments, "--device", "cpu", "--quick", "--format", "json") == 0
    payload: dict[str, Any] = json.loads(capsys.readouterr().out)
    return payload


def test_json_has_the_keys_of_the_contract(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    payload = answer(capsys, model)
    assert payload.keys() >= {"device", "probes", "numerics", "memory", "decode", "ok", "valid", "reasons"}
    assert (payload["device"], payload["model"]) == ("cpu", "small-mla")
    assert [row["held_out"] for row in payload["decode"]].count(True) == 2


def test_a_saved_run_stands_beside_the_next(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    answer(capsys, model, "--save", str(file))
    assert exit_code(model, "--device", "cpu", "--quick", "--compare", str(file)) == 0
    shown = capsys.readouterr().out
    assert "Beside " in shown
    assert {"torch", "python", "flags"} <= json.loads(file.read_text())["machine"]["details"].keys()


def test_a_plot_is_drawn(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    answer(capsys, model, "--plot", str(tmp_path / "roofline.svg"))
    assert "</svg>" in (tmp_path / "roofline.svg").read_text()


def test_check_exits_3_where_something_does_not_hold(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumericCheck, "ok", property(lambda self: self.id != "mla-block"))
    assert exit_code(model, "--device", "cpu", "--quick", "--check", "--format", "json") == 3


def test_without_torch_one_line_says_how_to_install_it(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validate, "find_spec", lambda name: None)
    assert exit_code(model) == 1
    message = "kvplan: validate runs on torch, which is not installed; pip install 'kvplan[validate]'\n"
    assert capsys.readouterr().err == message


def test_ctrl_c_leaves_no_file(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object) -> Iterator[str]:
        yield "a first step"
        raise KeyboardInterrupt

    monkeypatch.setattr(run.Session, "steps", interrupted)
    before = sorted(tmp_path.iterdir())
    assert exit_code(model, "--save", str(tmp_path / "run.json"), "-o", str(tmp_path / "out.json")) == 130
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_no_run_is_refused_before_anything_runs(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.Session, "plan", None)
    (tmp_path / "other.json").write_text("{}")
    assert exit_code(model, "--compare", str(tmp_path / "other.json")) == 1
    assert "is not a file that `kvplan validate --save` wrote" in capsys.readouterr().err


def test_ranks_outside_torchrun_say_how_to_start(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert exit_code(model, "--ranks") == 1
    assert "torchrun --nproc-per-node 2 -m kvplan validate --ranks" in capsys.readouterr().err
