"""Which GPUs, how many, and how spread: the cheapest plans that meet a target, and the Pareto front beyond them.

Every candidate is a full plan; cost is counted in GPUs (a price per GPU and hour may be given), so nothing is ranked
by a figure that the catalogue does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.errors import BadInput, KvplanError
from kvplan.mlp import MoeMlp
from kvplan.plan import Plan, Scenario, plan

if TYPE_CHECKING:
    from kvplan.gpu import GpuSpec

SIZES = (1, 2, 4, 8, 16, 32)
"""Groups of GPUs that are tried: powers of two, as boxes are built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What must be met: sessions at once, each of the scenario's context; speed of one session, if it matters."""

    concurrency: int
    min_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One plan that meets the target."""

    plan: Plan
    gpus: int
    cost_per_hour: float | None

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed of the whole system at the batch that it holds."""
        return self.plan.tokens_per_s

    @property
    def session_tokens_per_s(self) -> float | None:
        """Decode speed of one session at that batch."""
        return 1 / self.plan.step.seconds if self.plan.step else None


def candidates(
    base: Scenario, gpus: Iterable[GpuSpec], target: Target, prices: Mapping[str, float], kv_dtypes: Sequence[str]
) -> Iterator[Candidate]:
    """Every GPU type x size x spread x KV dtype that starts and meets the target."""
    for gpu in gpus:
        for size in SIZES:
            for scenario in _spreads(replace(base, gpu=gpu), size):
                for dtype in kv_dtypes:
                    found = _tried(replace(scenario, kv_dtype=dtype), target)
                    if found:
                        price = prices.get(found.deployment.gpu.name)
                        yield Candidate(found, size, price * size if price is not None else None)


def _spreads(base: Scenario, size: int) -> Iterator[Scenario]:
    """All along the engine's axis, TP inside a box of 8 with pipeline stages beyond, and data-parallel attention."""
    bare = replace(base, gpus=None, dcp=1, ep=1)
    if size <= 8:
        yield replace(bare, gpus=size, tp=None, pp=1, dp=1)
    else:
        yield replace(bare, tp=8, pp=size // 8, dp=1)
    if size > 1:
        yield replace(bare, tp=1, pp=1, dp=size)
        if any(isinstance(group.mlp, MoeMlp) for group in base.model.layer_groups):
            yield replace(bare, tp=1, pp=1, dp=size, ep=size)


def _tried(scenario: Scenario, target: Target) -> Plan | None:
    """The plan at the target's concurrency, if the engine accepts it and the target is met."""
    try:
        found = plan(scenario)
    except KvplanError:
        return None
    if not found.fits or found.batch < target.concurrency:
        return None
    at_target = _limited(found, target.concurrency)
    slow = target.min_tokens_per_s and (not at_target.step or 1 / at_target.step.seconds < target.min_tokens_per_s)
    return None if slow else at_target


def _limited(found: Plan, sessions: int) -> Plan:
    """The same plan when only `sessions` run: admission limited, speed at that batch."""
    per_replica = -(-sessions // found.deployment.parallel.dp)
    return plan(replace(found.scenario, max_num_seqs=per_replica)) if per_replica < found.max_batch else found


def ranked(found: Iterable[Candidate]) -> list[Candidate]:
    """Cheapest first (price where all have one, else GPUs), then fastest."""
    found = list(found)
    if not found:
        raise BadInput(
            "no GPU of the list holds that many sessions at that context; try fp8, a shorter context, more types"
        )
    priced = all(c.cost_per_hour is not None for c in found)
    return sorted(found, key=lambda c: ((c.cost_per_hour or 0.0) if priced else c.gpus, -(c.tokens_per_s or 0.0)))


def pareto(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other beats on GPUs and on speed at once."""
    front: list[Candidate] = []
    for candidate in sorted(found, key=lambda c: (c.gpus, -(c.tokens_per_s or 0.0))):
        if not front or (candidate.tokens_per_s or 0.0) > (front[-1].tokens_per_s or 0.0):
            front.append(candidate)
    return front
