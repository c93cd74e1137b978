"""The command line in this process, on screens of a given width, with models and GPUs of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvplan import __version__
from kvplan.catalog import dump_model
from kvplan.cli import main
from kvplan.specfile import write_yaml
from tests import small

SCREENS = Path(__file__).parent / "screens"


@dataclass(frozen=True)
class Shown:
    """What a command wrote, and its exit status."""

    out: str
    err: str
    status: int


Run = Callable[..., Shown]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("fit latent.yaml ...", width=80)` in a folder that holds the small models and GPUs as YAML files."""
    monkeypatch.chdir(tmp_path)
    for spec in (small.LATENT, small.GROUPED, small.WINDOWED):
        dump_model(spec, Path(f"{spec.name}.yaml"))
    for gpu in (small.GPU, small.BARE_GPU):
        write_yaml(gpu, Path(f"{gpu.name}.yaml"))

    def command(line: str, width: int = 80) -> Shown:
        monkeypatch.setenv("COLUMNS", str(width))
        status = 0
        try:
            main(line.split())
        except SystemExit as end:
            status = int(end.code or 0)
        shown = capsys.readouterr()
        return Shown(shown.out, shown.err, status)

    return command


def same_as_screen(name: str, shown: str) -> None:
    """`shown` is what screens/`name`.txt holds; KVPLAN_WRITE_SCREENS=1 writes it anew, to be read and committed."""
    path, shown = SCREENS / f"{name}.txt", shown.replace(f"kvplan {__version__}", "kvplan VERSION")
    if os.environ.get("KVPLAN_WRITE_SCREENS"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")
