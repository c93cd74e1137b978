"""How long a run may take, and by which name."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.errors import BadInput
from kvplan.validate.effort import EFFORTS, effort


@pytest.mark.parametrize(
    ("quick", "full", "name"), [(True, False, "quick"), (False, True, "full"), (False, False, "default")]
)
def test_two_flags_name_an_effort(quick: bool, full: bool, name: str) -> None:
    assert effort(quick, full) == name


def test_both_flags_together_are_refused() -> None:
    with pytest.raises(BadInput, match="give one of them"):
        effort(True, True)


@pytest.mark.parametrize(("name", "promised_s"), [("default", 90), ("full", 300)])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_efforts_end_within_their_time(device: str, name: str, promised_s: int) -> None:
    assert EFFORTS[device, name].total_s < promised_s
