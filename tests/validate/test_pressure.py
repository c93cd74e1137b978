"""What Linux says about load, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.validate.pressure import Load, Pressure


def proc(folder: Path, waiting_us: int, stolen_ticks: int) -> Path:
    (folder / "pressure").mkdir(exist_ok=True)
    (folder / "pressure/cpu").write_text(
        f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waiting_us}\nfull avg10=0.00\n"
    )
    (folder / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {stolen_ticks} 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
    return folder


def test_totals_are_read_in_seconds(tmp_path: Path) -> None:
    load = Load.now(proc(tmp_path, 2_500_000, 300))
    assert (load.waiting_s, load.stolen_s) == (2.5, 3.0)


def test_a_system_that_does_not_tell_is_not_blamed(tmp_path: Path) -> None:
    load = Load.now(tmp_path)
    assert (load.waiting_s, load.stolen_s) == (None, None)
    assert Pressure.between(load, load).complaints() == ()


@pytest.mark.parametrize(
    ("waiting_s", "stolen_s", "words"),
    [(0.5, 0.1, []), (2.0, 0.1, ["waited for a CPU 20%"]), (0.0, 1.0, ["hypervisor took 10%"]), (5, 5, ["50%", "50%"])],
)
def test_shares_above_the_limits_are_named(waiting_s: float, stolen_s: float, words: list[str]) -> None:
    complaints = Pressure.between(Load(100.0, 1.0, 2.0), Load(110.0, 1.0 + waiting_s, 2.0 + stolen_s)).complaints()
    assert len(complaints) == len(words)
    assert all(word in text for word, text in zip(words, complaints, strict=True))
