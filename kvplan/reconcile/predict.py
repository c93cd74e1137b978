"""What kvplan says of a scenario that a log describes: layout and budget, with flags that cannot be used left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError

if TYPE_CHECKING:
    from kvplan.budget import Budget
    from kvplan.engines.base import Deployment, Layout
    from kvplan.plan import Scenario


@dataclass(frozen=True, slots=True)
class Prediction:
    """`scenario`: as it was planned. `budget`: None where what the engine subtracts is not known."""

    scenario: Scenario
    deployment: Deployment
    layout: Layout
    budget: Budget | None
    notes: tuple[str, ...] = ()

    @property
    def graphs_deducted(self) -> bool:
        """Whether this release takes CUDA graphs off the pool."""
        return self.budget is not None and any(line.label == "cuda_graphs" for line in self.budget.lines)


def predict(scenario: Scenario) -> Prediction:
    """The first that the engine accepts of the scenario and of those with a flag, or the release, left out.

    Raises what the engine refuses the whole scenario with where leaving out does not help.
    """
    try:
        return _accepted(scenario)
    except KvplanError as refusal:
        for variant, left_out in _variants(scenario):
            with suppress(KvplanError):
                found = _accepted(variant)
                return replace(found, notes=(f"{left_out} is left out: {refusal}", *found.notes))
        raise


def _variants(scenario: Scenario) -> Iterator[tuple[Scenario, str]]:
    """Without each of the engine's flags, without all of them, under the newest release."""
    args = scenario.engine_args
    for flag, value in args.items():
        yield replace(scenario, engine_args={f: v for f, v in args.items() if f != flag}), f"{flag}={value!r}"
    if len(args) > 1:
        yield replace(scenario, engine_args={}), ", ".join(args)
    name, _, version = scenario.engine.partition("@")
    if version:
        yield replace(scenario, engine=name), f"version {version}"


def _accepted(scenario: Scenario) -> Prediction:
    engine, deployment = scenario.deployment()
    layout = engine.layout(deployment)
    try:
        return Prediction(scenario, deployment, layout, engine.budget(deployment, layout, scenario.given_bytes))
    except KvplanError as reason:
        return Prediction(scenario, deployment, layout, None, (f"no memory budget: {reason}",))
