"""The stopwatch rotates, keeps every sample, and leaves torch as it found it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.validate.bench import MIN_SAMPLES, CpuStopwatch, Timing, one_thread  # noqa: E402


def test_launches_rotate_and_each_is_a_sample() -> None:
    calls: list[int] = []
    launches = [lambda n=n: calls.append(n) for n in range(3)]
    timing = CpuStopwatch().time(launches, 0.0)
    assert len(timing.samples_s) == MIN_SAMPLES
    assert calls == [2, 0, 1, 2, 0, 1], "one launch of warm-up, then in order"


def test_median_and_spread_are_of_the_samples() -> None:
    timing = Timing(tuple(float(n) for n in range(1, 12)), wall_s=7.0)
    assert timing.median_s == 6
    assert timing.spread == pytest.approx((10 - 2) / 6)


def test_cpu_time_is_not_wall_time() -> None:
    """A launch that sleeps costs no CPU time."""
    import time

    timing = CpuStopwatch().time([lambda: time.sleep(0.01)], 0.0)
    assert timing.wall_s >= 0.01 > 5 * timing.median_s


def test_threads_are_given_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before
