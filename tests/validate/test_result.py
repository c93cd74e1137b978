"""What a run says of itself: keys of the contract, when it holds, when it is not to be judged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from kvplan.errors import BadInput
from kvplan.validate.result import DecodeRow, MemoryCheck, NumericCheck, Validation, load, save

CONTRACT = {"device", "probes", "numerics", "memory", "decode", "ok", "valid", "reasons"}


def row(probe_error: float, *, held_out: bool = True) -> DecodeRow:
    return DecodeRow(
        shape={"batch": 1, "num_heads": 16, "context_tokens": 1024},
        kernel="torch-mm",
        measured_s=1e-3,
        wall_s=1e-3,
        spread=0.1,
        predicted_s={"datasheet": None, "microbench": 0.5e-3, "probe": (1 + probe_error) * 1e-3},
        bytes_per_s=1e9,
        flops_per_s=1e10,
        held_out=held_out,
    )


def run(*rows: DecodeRow, reasons: tuple[str, ...] = (), error: float = 0.0) -> Validation:
    return Validation(
        device="cpu",
        model="small",
        machine={"name": "test"},
        probes={},
        numerics=(NumericCheck("a", "claim", error, 1e-12),),
        memory=(MemoryCheck("m", "storage", 100, 100),),
        decode=rows,
        reasons=reasons,
    )


def test_the_payload_has_the_keys_of_the_contract() -> None:
    payload = json.loads(json.dumps(run(row(0.05)).payload()))
    assert payload.keys() >= CONTRACT
    assert payload["numerics"][0].keys() >= {"id", "error", "bound", "ok"}
    assert payload["memory"][0].keys() >= {"predicted_bytes", "measured_bytes", "ok"}
    decode = payload["decode"][0]
    assert decode.keys() >= {"shape", "measured_s", "predicted_s", "error", "bytes_per_s", "flops_per_s", "held_out"}
    assert decode["predicted_s"].keys() == decode["error"].keys() == {"datasheet", "microbench", "probe"}
    assert decode["error"] == {"datasheet": None, "microbench": -0.5, "probe": pytest.approx(0.05)}


def test_errors_stand_only_on_held_out_shapes() -> None:
    assert set(row(0.5, held_out=False).error.values()) == {None}
    assert run(row(0.5, held_out=False)).errors("probe") == []


@pytest.mark.parametrize(
    ("errors", "holds"),
    [
        ([0.05, -0.07, 0.02], True),
        ([0.09, -0.09, 0.09], False),  # median above 8 %
        ([0.01] * 8 + [0.3, 0.3], False),  # eight in ten within 20 %
        ([0.01] * 9 + [0.9], True),
    ],
)
def test_the_promise_is_a_median_of_8_percent_and_nine_in_ten_within_20(errors: list[float], holds: bool) -> None:
    result = run(*(row(e) for e in errors))
    assert result.prediction_holds is holds
    assert result.ok is holds


def test_an_invalid_run_is_not_judged_by_its_timings() -> None:
    result = run(row(5.0), reasons=("tasks waited",))
    assert not result.valid
    assert result.prediction_holds is None
    assert result.ok


def test_a_failed_number_fails_the_run_whatever_the_timings() -> None:
    assert not run(row(0.0), error=1e-9).ok
    assert not run(row(0.0), error=math.nan).ok


def test_nan_is_null_in_json() -> None:
    payload = run(error=math.nan).payload()
    assert payload["numerics"][0]["error"] is None
    assert payload["numerics"][0]["ok"] is False


@pytest.mark.parametrize(
    ("measured", "tolerance", "ok"), [(100, 0, True), (101, 0, False), (101, 1, True), (99, 0, False)]
)
def test_bytes_agree_within_their_tolerance(measured: int, tolerance: int, ok: bool) -> None:
    assert MemoryCheck("m", "process", 100, measured, tolerance).ok is ok


def test_a_saved_run_loads_as_its_payload(tmp_path: Path) -> None:
    result = replace(run(row(0.01)), notes=("a note",))
    save(result, tmp_path / "run.json")
    assert load(tmp_path / "run.json") == json.loads(json.dumps(result.payload()))
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "is not JSON"), ("[]", "is not a file that"), ('{"command": "fit"}', "is not a file that")],
)
def test_another_file_is_not_a_run(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=rf"--compare .*other\.json: {words}"):
        load(file)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--save .*: cannot be written"):
        save(run(), tmp_path / "absent" / "run.json")
