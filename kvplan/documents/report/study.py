"""Everything that a report says of one model on its GPUs, found once and shared by tables, figures and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.charts import lengths
from kvplan.checks import Item, checklist
from kvplan.plan import Plan, Scenario, at_context, plan
from kvplan.remedies import Remedy, remedies, smallest_gpus
from kvplan.roofline import Step, decode_step
from kvplan.sensitivity import Notch, notches


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One plan and the plans around it. `steps`: (sessions over all replicas, one decode step of them), ascending."""

    plan: Plan
    at_contexts: tuple[Plan, ...]
    steps: tuple[tuple[int, Step], ...]
    items: tuple[Item, ...]
    notches: tuple[Notch, ...]
    remedies: tuple[Remedy, ...]
    smallest_gpus: int | None

    @property
    def name(self) -> str:
        """The model's."""
        return self.plan.deployment.spec.name


def study(scenario: Scenario, contexts: Sequence[int] = ()) -> Study:
    """Plan a scenario, and again at the lengths that show its curve and at further `contexts`."""
    planned = plan(scenario)
    length = planned.deployment.max_model_len
    others = (planned if n == length else plan(at_context(scenario, n)) for n in lengths(length, contexts))
    return Study(
        plan=planned,
        at_contexts=tuple(others),
        steps=_steps(planned),
        items=checklist(planned),
        notches=notches(planned),
        remedies=() if planned.fits else remedies(planned),
        smallest_gpus=smallest_gpus(planned) if scenario.kv_pool_bytes is None else None,
    )


def _steps(p: Plan) -> tuple[tuple[int, Step], ...]:
    """Batches of powers of two up to the largest; none where nothing fits or the GPU's peaks are unknown."""
    powers = {1 << exponent for exponent in range(p.max_batch.bit_length())}
    found = ((b, decode_step(p.deployment, p.layout.kv_format, b)) for b in sorted(powers | {p.max_batch}) if b)
    return tuple((b * p.deployment.parallel.dp, step) for b, step in found if step)
