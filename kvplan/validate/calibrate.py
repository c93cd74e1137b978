"""From a dozen timings of one kernel to its time model, for shapes that were not timed.

The probes are few and the model has more constants than they pin down one by one, so each constant starts from a
broad expectation (a log-normal prior, one for all devices and engines) and moves as far as the probes ask. How the
kernel cuts its work is not known either: every form that kernels in use have is fitted, and the likeliest wins. Errors
count in logarithms with Cauchy's loss, so that one bad timing does not bend the rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvplan.decode_kernel import Calibration, DecodeShape, Device, KernelForm, Load, load_of, seconds
from kvplan.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float64]

_CPU_PROBES = (
    (1, 16, 4096), (1, 128, 4096), (4, 16, 7168), (4, 128, 3072), (1, 16, 1024), (1, 128, 1024),
)  # fmt: skip
"""One thread adds reading and arithmetic: both head counts at three sizes, the first in cache."""

_TYPICAL_SM_COUNT = 128
"""Where a device does not say how many multiprocessors it has."""

_OUTLIERS = (0.3, 0.1, 0.04)
"""Relative errors that count as ordinary (scale of Cauchy's loss), from the first look to the last."""
_FACTOR_SIGMA = 0.3
"""Spread of the logarithm of a head count's own factor."""
_FASTER = 1.1
"""A rate's expectation over the best that the probes show: part of their time is overhead."""


def probe_shapes(
    device: Device, *, kv_bytes_per_token: int = 1152, available: Collection[DecodeShape] | None = None
) -> tuple[DecodeShape, ...]:
    """The shapes to time before anything is predicted: 12 on a GPU, 6 on a CPU.

    Where only the `available` shapes have times, the nearest of them, at most half, so that some are left to predict.
    """
    grid = _gpu_probes(device.sm_count or _TYPICAL_SM_COUNT) if device.overlap else _CPU_PROBES
    wanted = [DecodeShape(b, h, s, kv_bytes_per_token=kv_bytes_per_token) for b, h, s in grid]
    if available is None:
        return tuple(wanted)
    chosen: list[DecodeShape] = []
    for shape in wanted[: len(available) // 2]:
        chosen.append(nearest(shape, set(available).difference(chosen)))
    return tuple(chosen)


def _gpu_probes(sm_count: int) -> Sequence[tuple[int, int, int]]:
    """(batch, heads, context), the most telling first. The largest cache is 2.25 GiB in bf16."""
    return (
        (256, 128, 8192),  # arithmetic at the full head count
        (sm_count * 11 // 10, 16, 8192),  # bandwidth, and whether a second turn that is nearly empty counts
        (1, 16, 1024),  # launch
        (1024, 128, 1024),  # many short items, many queries
        (256, 64, 8192),  # with the one below, kernels chosen by head count
        (1, 16, 65536),  # one long session: how far its keys are split
        (16, 16, 2048),  # at home in the L2
        (16, 64, 8192),  # just too large for it
        (1024, 16, 1024),  # many short items, few queries
        (32, 64, 2048),  # partial outputs and their reduction
        (256, 32, 8192),
        (1, 128, 2048),  # a short reduction of many rows
    )


def nearest(shape: DecodeShape, available: Iterable[DecodeShape]) -> DecodeShape:
    """By ratios, and by head count first: it chooses the kernel. Of two as near, the smaller."""

    def distance(other: DecodeShape) -> tuple[float, ...]:
        heads, batch, context = (
            abs(math.log(getattr(other, name) / getattr(shape, name)))
            for name in ("num_heads", "batch", "context_tokens")
        )
        return heads, batch + context, other.batch, other.context_tokens

    return min(available, key=distance)


def gpu_forms() -> tuple[KernelForm, ...]:
    """How kernels in use cut a step up.

    wgmma and tcgen05 kernels take 64 rows and as many splits as fill the device (FlashMLA, FlashAttention-3,
    trtllm-gen), or none (TensorRT-LLM on Ampere), or dequantise an fp8 cache first; mma.sync kernels in Triton take 16
    and a fixed number: vLLM 4, SGLang 8 or 16.
    """
    wide = [KernelForm(64, None, w, overlap) for w in ("waves", "persistent") for overlap in (True, False)]
    narrow = [KernelForm(16, splits, w) for splits in (None, 1, 4, 8, 16) for w in ("waves", "persistent")]
    return (*wide, *narrow, KernelForm(64, 1), KernelForm(64, 4))


def forms_of(device: Device) -> tuple[KernelForm, ...]:
    """Of a GPU; of a device whose parts are unknown, whole tiles at most; of a CPU thread, none."""
    if not device.overlap:
        return (KernelForm(1, 1, "ideal", overlap=False),)
    if device.sm_count is None:
        return tuple(KernelForm(rows, 1, "ideal") for rows in (64, 16, 1))
    return gpu_forms()


def fit(
    probes: Sequence[tuple[DecodeShape, float]], device: Device, *, without: Collection[str] = (),
    forms: Iterable[KernelForm] | None = None,
) -> Calibration:  # fmt: skip
    """The likeliest calibration of one kernel whose `probes` are (shape, seconds).

    `without` leaves constants of `Calibration` at rest, `forms` replaces the forms that come into question: for tests
    of what each is worth. Raises `BadInput` for fewer than three probes or a time that is not positive.
    """
    if len(probes) < 3:
        raise BadInput(f"probes: {len(probes)} timings do not fix a time model; give 3 or more")
    for shape, time_s in probes:
        if not (math.isfinite(time_s) and time_s > 0):
            raise BadInput(f"probes: {time_s} s at {shape} is no time")
    candidates = forms_of(device) if forms is None else forms
    fits = [_fit_form(probes, device, form, without) for form in candidates]
    return min(fits, key=lambda found: found[0])[1]


@dataclass(frozen=True, slots=True)
class _Prior:
    """What a constant is expected to be before any probe: e^(+-sigma) around the centre."""

    name: str
    centre: float
    sigma: float


def _priors(probes: Sequence[tuple[DecodeShape, float]], device: Device, form: KernelForm) -> list[_Prior]:
    """Rates start from the best that the probes show, overheads from what kernels on GPUs take."""
    bytes_per_s = _FASTER * max(shape.kv_bytes / time_s for shape, time_s in probes)
    flops_per_s = _FASTER * max(shape.flops / time_s for shape, time_s in probes)
    fastest_s = min(time_s for _, time_s in probes)
    plain = [
        _Prior("bytes_per_s", bytes_per_s, 1.5), _Prior("flops_per_s", flops_per_s, 1.5),
        _Prior("t0_s", fastest_s / 4, 1.5),
    ]  # fmt: skip
    if form.schedule == "ideal" or device.sm_count is None:
        return plain
    return [
        *plain,
        _Prior("item_s", 5e-6, 1.0),
        _Prior("split_s", 40e-9, 0.7),
        _Prior("cold_s", 6e-6, 0.7),
        _Prior("floor_s", fastest_s, 1.0),
        _Prior("io_bytes_per_s", 0.5 * (device.bytes_per_s or bytes_per_s), 0.7),
        _Prior("l2_bytes_per_s", 40e9 * device.sm_count, 0.5),
    ]


@dataclass(frozen=True, slots=True)
class _Problem:
    """One form's fit as least squares over x, the logarithms of constants and of head counts' factors."""

    loads: Sequence[Load]
    log_times: Vector
    form: KernelForm
    priors: Sequence[_Prior]
    heads: Sequence[int]

    def calibration(self, x: Vector) -> Calibration:
        """What x stands for."""
        count = len(self.priors)
        values: dict[str, Any] = {p.name: math.exp(v) for p, v in zip(self.priors, x[:count], strict=True)}
        factors = zip(self.heads, map(math.exp, x[count:]), strict=True)
        return replace(Calibration(0.0, 1.0, 1.0, self.form, work_factors=tuple(factors)), **values)

    def residuals(self, x: Vector, scale: float) -> Vector:
        """Errors under Cauchy's loss, then the distances from what was expected, in sigmas."""
        import numpy as np

        calibration = self.calibration(x)
        times = np.array([seconds(load, calibration) for load in self.loads])
        errors = (np.log(times) - self.log_times) / scale
        sigmas = np.array([p.sigma for p in self.priors] + [_FACTOR_SIGMA] * len(self.heads))
        return np.concatenate([np.sign(errors) * np.sqrt(np.log1p(errors**2)), (x - self.expected()) / sigmas])

    def expected(self) -> Vector:
        """Where the priors have their centres; the fit starts there."""
        import numpy as np

        return np.log([p.centre for p in self.priors] + [1.0] * len(self.heads))


def _fit_form(
    probes: Sequence[tuple[DecodeShape, float]], device: Device, form: KernelForm, without: Collection[str]
) -> tuple[float, Calibration]:
    """Cost (minus twice the logarithm of the likelihood, up to a constant) and calibration."""
    import numpy as np

    problem = _Problem(
        loads=[load_of(shape, form, device) for shape, _ in probes],
        log_times=np.log([time_s for _, time_s in probes]),
        form=form,
        priors=[p for p in _priors(probes, device, form) if p.name not in without],
        heads=_factor_heads(probes, device, without),
    )
    x, cost = problem.expected(), math.inf
    for scale in _OUTLIERS:
        x, cost = _least_squares(problem, scale, x)
    return cost, problem.calibration(x)


def _factor_heads(
    probes: Sequence[tuple[DecodeShape, float]], device: Device, without: Collection[str]
) -> Sequence[int]:
    """The head counts that get a factor: on a CPU none, where the two rates tell them apart."""
    if not device.overlap or "work_factors" in without:
        return ()
    return sorted({shape.num_heads for shape, _ in probes})


def _least_squares(problem: _Problem, scale: float, x: Vector, steps: int = 40) -> tuple[Vector, float]:
    """Levenberg-Marquardt with differences for derivatives; the point and its cost."""
    import numpy as np

    damping, width = 1e-2, 1e-5
    residuals = problem.residuals(x, scale)
    cost = float(residuals @ residuals)
    for _ in range(steps):
        shifted = x + width * np.eye(len(x))
        jacobian = np.stack([problem.residuals(row, scale) - residuals for row in shifted], axis=1) / width
        normal, slope = jacobian.T @ jacobian, jacobian.T @ residuals
        before = cost
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope)
            trial = x + np.clip(step, -1.0, 1.0)
            found = problem.residuals(trial, scale)
            if found @ found < cost:
                x, residuals, cost, damping = trial, found, float(found @ found), damping / 3
                break
            damping *= 4
        if before - cost <= 1e-6 * before:
            break
    return x, cost
