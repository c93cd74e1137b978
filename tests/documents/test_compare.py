"""kvplan.documents.compare: what an answer without a plot does not pay for."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["compare", "fit", "sweep"])
def test_plots_are_loaded_only_where_one_is_asked_for(module: str) -> None:
    code = f"import sys, kvplan.documents.{module}; print('kvplan.formats.plot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
