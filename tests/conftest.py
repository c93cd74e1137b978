"""Shared fixtures."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
os.environ["KVPLAN_CACHE_DIR"] = tempfile.mkdtemp(prefix="kvplan-tests-")  # never the user's own cache


@pytest.fixture(scope="session")
def groundtruth() -> Path:
    """The folder of reference data; tests that need it skip, saying so, where it is absent."""
    folder = Path(os.environ.get("KVPLAN_GROUNDTRUTH") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder} (set KVPLAN_GROUNDTRUTH)")
    return folder
