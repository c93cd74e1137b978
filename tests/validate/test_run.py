"""A whole session, small: what it measures, when it stops, and what makes it invalid."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.attention.gqa import GroupedQueryAttention  # noqa: E402
from kvplan.errors import BadInput, Unsupported  # noqa: E402
from kvplan.model import LayerGroup, ModelSpec  # noqa: E402
from kvplan.validate import contest, run  # noqa: E402
from kvplan.validate.effort import EFFORTS  # noqa: E402
from kvplan.validate.paged import Extent  # noqa: E402
from kvplan.validate.pressure import Load  # noqa: E402
from kvplan.validate.result import Validation  # noqa: E402
from kvplan.validate.run import Session  # noqa: E402
from tests.validate.conftest import SMALL_GRID, shrink  # noqa: E402

QUIET = Load(0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's worth of everything."""
    shrink(monkeypatch)


def finished(session: Session) -> Validation:
    for _ in session.steps():
        pass
    return session.result()


def test_a_session_measures_everything(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.Load, "now", lambda: QUIET)
    result = finished(Session.plan(spec, "cpu", "quick"))
    assert all(c.ok for c in result.numerics), result.numerics
    assert all(c.ok for c in result.memory if c.quantity != "process"), result.memory
    assert [
        (r.shape["batch"], r.shape["num_heads"], r.shape["context_tokens"]) for r in result.decode if r.held_out
    ] == list(SMALL_GRID)
    assert {r.kernel for r in result.decode if not r.held_out} == {"torch-bmm", "torch-mm", "torch-sdpa"}
    assert [c.kind for c in result.comparisons] == ["mla absorbed", "mla restored", "mha", "gqa-8", "mqa"]
    assert {c.id for c in result.numerics} >= {
        "a1-compression",
        "mla-block",
        "decode-mla-fp8-paged",
        "kernel-torch-mm-bf16-h128",
    }
    assert result.probes.keys() >= {"device", "device_repeated", "pressure", "drift of device probes"}


def test_without_time_caches_go_unchecked_and_it_says_so(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, ("cpu", "quick"), replace(EFFORTS["cpu", "quick"], total_s=0.0))
    result = finished(Session.plan(spec, "cpu", "quick"))
    assert any("no time was left to check the memory of mla-bf16-contiguous" in note for note in result.notes)
    assert result.memory == ()
    assert result.comparisons == ()


def test_where_nothing_can_be_timed_it_says_so(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "able", lambda device: [])
    result = finished(Session.plan(spec, "cpu", "quick"))
    assert "no kernel could be timed" in result.notes
    assert result.decode == ()
    assert result.prediction_holds is None


def test_a_busy_machine_makes_the_timings_invalid(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([Load(0.0, 0.0, 0.0), Load(10.0, 5.0, 0.0)])
    monkeypatch.setattr(run.Load, "now", lambda: next(moments))
    result = finished(Session.plan(spec, "cpu", "quick"))
    assert not result.valid
    assert "tasks waited for a CPU 50% of the time (at most 10%)" in result.reasons


def test_probes_that_move_make_the_timings_invalid(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.Load, "now", lambda: QUIET)
    monkeypatch.setattr(contest, "drift", lambda lab, contestant: 0.31)
    result = finished(Session.plan(spec, "cpu", "quick"))
    assert any("probes in bf16 moved by 31% between start and end (at most 10%)" in reason for reason in result.reasons)


def test_threads_are_given_back(spec: ModelSpec) -> None:
    before = torch.get_num_threads()
    finished(Session.plan(spec, "cpu", "quick"))
    assert torch.get_num_threads() == before


def test_a_model_without_mla_is_refused_before_anything_runs(spec: ModelSpec) -> None:
    attention = GroupedQueryAttention(num_attention_heads=8, num_key_value_heads=8, head_dim=64)
    other = replace(spec, name="plain", layer_groups=(LayerGroup(layers="0-1", attention=(attention,)),))
    with pytest.raises(Unsupported, match="plain has mha attention; validate decodes MLA, such as deepseek-v3"):
        Session.plan(other, "cpu", "quick")


def test_a_context_that_cannot_grow_is_refused(spec: ModelSpec) -> None:
    with pytest.raises(BadInput, match="--context: 64 is too short to grow"):
        Session.plan(spec, "cpu", "quick", context_tokens=64)


def test_batch_and_context_are_those_asked_for(spec: ModelSpec) -> None:
    assert Session.plan(spec, "cpu", "quick", 3, 200).extent == Extent(3, 200)
