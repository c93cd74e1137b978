"""The GPU is found by its name or its memory, and every guess is said."""

from __future__ import annotations

import pytest

from kvplan.identify import gpu_of
from kvplan.logs import Observed, Reading
from kvplan.units import GIB


def _log(**readings: float | str) -> Observed:
    found = (
        Reading(n, int(v * GIB) if n.endswith("_bytes") and not isinstance(v, str) else v) for n, v in readings.items()
    )
    return Observed(engine="vllm", source="a.log", readings=tuple(found))


def test_the_users_gpu_goes_before_the_logs() -> None:
    device = gpu_of(_log(gpu_total_bytes=79.19), "l4")

    assert (device.spec.name, device.found_by, device.notes) == ("l4", "name", ())


@pytest.mark.parametrize(
    ("readings", "name"),
    [
        ({"gpu_total_bytes": 79.19}, "h100"),
        ({"gpu_total_bytes": 44.42}, "l40s"),
        ({"gpu_total_bytes": 119.70}, "gb10"),
        ({"requested_bytes": 75.23, "gpu_memory_utilization": 0.95}, "h100"),
        ({"free_before_load_bytes": 78.68}, "h100"),
    ],
    ids=[
        "printed",
        "another",
        "what the system leaves of unified memory",
        "requested over its share",
        "free before loading",
    ],
)
def test_by_its_memory_which_is_then_the_logs(readings: dict[str, float], name: str) -> None:
    device = gpu_of(_log(**readings), None)

    assert (device.spec.name, device.found_by) == (name, "memory")
    assert device.spec.memory_bytes == pytest.approx(next(iter(readings.values())) * GIB, rel=0.06)
    assert device.notes[0].startswith("GPU by its memory of ")


def test_cards_of_the_same_memory_are_all_named() -> None:
    note = gpu_of(_log(gpu_total_bytes=23.55), None).notes[0]

    assert note.startswith("GPU by its memory of 23.55 GiB: rtx-")
    assert {"rtx-3090-ti", "rtx-a5000", "rtx-4090", "rtx-3090"} <= set(note.replace(",", " ").replace(";", " ").split())


def test_memory_that_no_card_has_keeps_its_size_and_says_so() -> None:
    device = gpu_of(_log(gpu_total_bytes=8.0), None)

    assert device.spec.memory_bytes == 8 * GIB
    assert device.notes == ("no GPU of the catalogue has 8.00 GiB; the block rules of h100 are assumed, give --gpu",)


def test_by_the_name_that_the_log_states() -> None:
    device = gpu_of(_log(gpu="NVIDIA GeForce RTX 4090"), None)

    assert (device.spec.name, device.found_by) == ("rtx-4090", "name")


def test_a_name_that_is_not_in_the_catalogue_is_said() -> None:
    device = gpu_of(_log(gpu="NVIDIA GeForce RTX 4080"), None)

    assert device.found_by == "nothing"
    assert device.notes[0] == "the log's GPU NVIDIA GeForce RTX 4080 is not in the catalogue"


def test_a_log_that_states_nothing_is_said_to() -> None:
    device = gpu_of(_log(), None)

    assert device.found_by == "nothing"
    assert device.notes == ("the log states no GPU memory; the block rules of h100 are assumed, give --gpu",)
