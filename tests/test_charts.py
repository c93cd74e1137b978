"""kvplan.charts: what each chart says, before anything is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import charts
from kvplan.compare import compare
from kvplan.plan import Plan, Scenario, at_context, plan
from kvplan.roofline import decode_step
from tests import small


def planned(**changes: object) -> Plan:
    scenario = Scenario(model=small.LATENT, gpu=small.GPU, tp=2, context=8192)
    return plan(replace(scenario, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("longest", "asked", "expected"),
    [
        (32768, (), (4096, 8192, 16384, 32768)),
        (163840, (100_000,), (4096, 8192, 16384, 32768, 65536, 100_000, 131072, 163840)),
        (2048, (), (256, 512, 1024, 2048)),
        (1, (), (1,)),
    ],
)
def test_lengths_double_up_to_the_longest(longest: int, asked: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert charts.lengths(longest, asked) == expected


@given(st.integers(1, 2**24))
def test_lengths_end_with_the_longest_and_are_few(longest: int) -> None:
    found = charts.lengths(longest)

    assert found[-1] == longest
    assert list(found) == sorted(set(found))
    assert len(found) <= 14


def test_the_cache_has_a_line_per_model_and_names_the_dtype_where_there_are_several() -> None:
    one = charts.cache(compare([small.LATENT, small.GROUPED], contexts=(4096, 8192), tps=(2,)))
    several = charts.cache(compare([small.GROUPED], contexts=(4096,), kv_dtypes=("bf16", "fp8"), batch=4))

    assert one.series[0] == ("latent", [4096, 8192], [4096 * 36864, 8192 * 36864])
    assert [name for name, _, _ in one.series] == ["latent", "grouped"]
    assert (one.y.label, one.y.unit, one.x.unit) == ("Cache on one rank at TP 2", "bytes", "tokens")
    assert [name for name, _, _ in several.series] == ["grouped, bf16", "grouped, fp8"]
    assert several.title == "Cache of 4 sessions against context"


@pytest.mark.parametrize("utilization", [0.5, 0.92, 0.995])
def test_the_parts_of_a_bar_are_the_gpu_to_the_hundredth(utilization: float) -> None:
    p = planned(gpu_memory_utilization=utilization)
    (name, parts), *others = charts.memory([p]).bars

    assert (name, others) == ("latent", [])
    assert 0.99 * p.budget.gpu_total_bytes <= sum(size for _, size in parts) <= p.budget.gpu_total_bytes
    assert {"weights", "KV pool"} <= {label for label, _ in parts}
    assert charts.memory([p]).limit == ("80.00 GiB in all", 80 * small.GIB)


def test_a_bar_that_does_not_fit_passes_the_mark_and_has_no_pool() -> None:
    chart = charts.memory([planned(given_bytes={"weights": 90 * small.GIB})])
    parts = dict(chart.bars[0][1])

    assert chart.limit
    assert sum(parts.values()) > chart.limit[1]
    assert "KV pool" not in parts


def test_a_mark_needs_gpus_of_one_size() -> None:
    other = replace(small.GPU, name="small", memory_bytes=60 * small.GIB)

    assert charts.memory([planned(), planned(gpu=other)]).limit is None


def test_sessions_are_those_of_all_replicas_and_models_that_never_fit_are_named() -> None:
    fits, never = planned(dp=2), planned(given_bytes={"weights": 90 * small.GIB})
    chart = charts.sessions({"two": [fits, plan(at_context(fits.scenario, 4096))], "none": [never]})

    assert chart.series[0] == ("two", [8192, 4096], [fits.batch, plan(at_context(fits.scenario, 4096)).batch])
    assert fits.batch == 2 * fits.max_batch
    assert "No session of any length fits: none." in chart.caption


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_a_step_lies_beneath_both_roofs(batch: int) -> None:
    p = planned()
    step = decode_step(p.deployment, p.layout.kv_format, batch)
    assert step
    chart = charts.roofline(small.GPU, [("here", step, 1)])

    assert chart
    assert (chart.bytes_per_s, chart.flops_per_s, chart.ridge) == (4e12, 8e14, 200)
    ((name, intensity, flops_per_s),) = chart.points
    assert name == "here"
    assert flops_per_s <= min(intensity * chart.bytes_per_s, chart.flops_per_s)


def test_without_peaks_or_steps_there_is_no_roofline() -> None:
    step = planned().step

    assert step
    assert charts.roofline(small.BARE_GPU, [("here", step, 1)]) is None
    assert charts.roofline(small.GPU, []) is None
