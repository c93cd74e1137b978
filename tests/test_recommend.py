"""The cheapest plan that meets a target; the front that nothing beats."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kvplan.catalog import load_gpu, load_model
from kvplan.errors import BadInput
from kvplan.plan import Scenario, plan
from kvplan.recommend import Candidate, Target, candidates, pareto, ranked
from kvplan.remedies import remedies, smallest_gpus


def found_for(
    concurrency: int, *, speed: float | None = None, prices: dict[str, float] | None = None
) -> list[Candidate]:
    gpus = [load_gpu("h100"), load_gpu("l40s")]
    base = Scenario(model=load_model("llama-3.1-8b"), gpu=gpus[0], context=8192)
    target = Target(concurrency=concurrency, min_tokens_per_s=speed)
    return list(candidates(base, gpus, target, prices or {}, ("auto",)))


def test_every_candidate_meets_the_target() -> None:
    """Sessions and speed."""
    found = found_for(64, speed=30.0)

    assert found
    assert all(c.plan.batch >= 64 and (c.session_tokens_per_s or 0) >= 30.0 for c in found)


def test_the_cheapest_comes_first() -> None:
    """By GPUs without prices, by price with them."""
    by_count = ranked(found_for(16))
    by_price = ranked(found_for(16, prices={"h100": 100.0, "l40s": 1.0}))

    assert by_count[0].gpus == min(c.gpus for c in by_count)
    assert by_price[0].plan.deployment.gpu.name == "l40s"


def test_an_impossible_target_is_said() -> None:
    """No plan is made up."""
    with pytest.raises(BadInput, match="holds that many sessions"):
        ranked(found_for(10_000_000))


def test_the_front_trades_gpus_for_speed() -> None:
    """Each step of the front costs more GPUs and decodes faster."""
    front = pareto(found_for(16))

    assert all(a.gpus < b.gpus and (a.tokens_per_s or 0) < (b.tokens_per_s or 0) for a, b in pairwise(front))


def test_remedies_work_and_are_ranked() -> None:
    """Each remedy's own plan fits; those that cost no GPUs come first."""
    short = plan(Scenario(model=load_model("llama-3.1-70b"), gpu=load_gpu("h100"), tp=2, context=131072))
    found = remedies(short)

    assert not short.fits
    assert found
    assert all(plan(r.scenario).fits for r in found)
    costs = [plan(r.scenario).deployment.parallel.gpus for r in found]
    assert costs == sorted(costs)


@pytest.mark.parametrize(("context", "gpus"), [(8192, 2), (131072, 4)])
def test_the_smallest_group_of_gpus(context: int, gpus: int) -> None:
    """70 B parameters in 16 bit need two H100 for their weights, and more for a session of 128k."""
    planned = plan(Scenario(model=load_model("llama-3.1-70b"), gpu=load_gpu("h100"), tp=8, context=context))

    assert smallest_gpus(planned) == gpus


def test_llama_cpp_grows_by_stages() -> None:
    """What it needs is a number of GPUs over which it deals out layers, not a TP that it refuses."""
    short = plan(Scenario(model=load_model("llama-3.1-70b"), gpu=load_gpu("h100"), engine="llama.cpp", context=8192))

    assert smallest_gpus(short) == 2
    assert [r.change for r in remedies(short)][:1] == ["--pp 2 on 2 GPUs"]
