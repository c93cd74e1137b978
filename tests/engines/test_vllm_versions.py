"""The table of releases: every boundary is bracketed, every rule is one that the planner knows."""

from __future__ import annotations

import pytest

from kvplan.engines.vllm.served import FIRST, LAST
from kvplan.engines.vllm.versions import (
    CHANGES,
    NEWEST,
    OLDEST,
    Change,
    Rules,
    default_utilization,
    release_of,
    rule_names,
    rules,
)  # fmt: skip
from kvplan.errors import BadInput, Unsupported


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: f"{c.rule}-{c.since}")
def test_a_boundary_lies_between_two_releases_that_were_read(change: Change) -> None:
    """The release that lacks a rule is the one just before the first that has it."""
    first, lacking = release_of(change.since), release_of(change.absent_in)

    assert change.rule in rule_names()
    assert lacking[1] + 1 == first[1]


def test_changes_are_in_the_order_of_releases() -> None:
    """A later change of the same rule must win."""
    assert [release_of(c.since) for c in CHANGES] == sorted(release_of(c.since) for c in CHANGES)


def test_no_change_repeats_what_stands() -> None:
    """Each change of a rule takes another value than the one before it."""
    standing = {name: getattr(Rules(), name) for name in rule_names()}
    for change in CHANGES:
        assert standing[change.rule] != change.value, change
        standing[change.rule] = change.value


def test_a_release_has_the_rules_from_its_boundary_on() -> None:
    """The token line: blocks; blocks of a group; concurrency times length."""
    assert [rules(v).printed_tokens for v in ("0.8.5", "0.9.0", "0.19.1", "0.20.0", None)] == [
        "blocks", "blocks per group", "blocks per group", "concurrency", "concurrency",
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "share"), [("0.6.0", 0.9), ("0.19.1", 0.9), ("0.20", 0.92), (None, 0.92)])
def test_default_utilization(version: str | None, share: float) -> None:
    """0.9 through 0.19."""
    assert default_utilization(version) == share


@pytest.mark.parametrize(
    ("text", "release"),
    [("0.33.0", (0, 33)), ("v0.19.1", (0, 19)), ("0.17.1rc1.dev88", (0, 17)), ("0.6.6.post1", (0, 6)), ("0.8", (0, 8))],
)
def test_reads_releases(text: str, release: tuple[int, int]) -> None:
    """Patches, candidates and builds count as their minor release."""
    assert release_of(text) == release


@pytest.mark.parametrize("text", ["", "latest", "0", "0.x", "main", "0.33.0.1.2 (V0)"])
def test_refuses_what_is_no_release(text: str) -> None:
    """And says how one is written."""
    with pytest.raises(BadInput, match="not a release; write vllm@"):
        release_of(text)


@pytest.mark.parametrize("text", ["0.5.4", "0.34.0", "1.0"])
def test_refuses_releases_whose_rules_are_unknown(text: str) -> None:
    """Older than the oldest and newer than the newest that was read."""
    with pytest.raises(Unsupported, match=rf"vLLM {OLDEST} to {NEWEST} are known"):
        rules(text)


def test_kinds_and_architectures_name_releases() -> None:
    """Both tables beside the rules."""
    for first, lacking in FIRST.values():
        assert release_of(lacking)[1] + 1 == release_of(first)[1]
    for last in LAST.values():
        assert release_of(OLDEST) <= release_of(last) < release_of(NEWEST)
