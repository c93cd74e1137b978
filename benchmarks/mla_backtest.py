"""The decode-time model against measured kernels: probe a few shapes of each file, predict the others.

    python benchmarks/mla_backtest.py FILE.csv.gz [--format json] [--roofline datasheet] [--without NAME]

The file has the columns gpu, framework, version, kernel, kv_dtype, num_heads, batch, context_tokens, latency_us. Each
(gpu, framework, version, kv_dtype) is a set; inside it each kernel is calibrated on the shapes that `kvplan validate`
would time, and every other shape of at least 1,024 tokens and 8 heads is predicted. Probes are never scored.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvplan.catalog import load_gpu
from kvplan.decode_kernel import IDEAL, Calibration, DecodeShape, Device, KernelForm, datasheet, predict_s
from kvplan.errors import BadInput, KvplanError, UnknownName
from kvplan.storage import kv_format
from kvplan.validate.calibrate import fit, forms_of, nearest, probe_shapes

LATENT_DIM, ROPE_DIM = 512, 64
"""DeepSeek-V3's record, which the collected files measure."""
MIN_CONTEXT_TOKENS, MIN_HEADS = 1024, 8
LARGE_S = 40e-6
"""From here on the start of a kernel no longer decides its time."""
MIN_SHAPES = 6
"""Three probes, and as many to predict."""
COLUMNS = ("gpu", "framework", "version", "kernel", "kv_dtype", "num_heads", "batch", "context_tokens", "latency_us")
FILE_NAMES = {"a100": "a100-80gb"}
"""GPU names of the collected files that mean one of several devices in the catalogue: all were SXM modules."""
TYPICAL = Device(sm_count=128, l2_bytes=64 << 20, bytes_per_s=None, flops_per_s=None)
"""Stands in for what the catalogue does not know of a GPU: between an A100 and a B200. Its peaks stay unknown."""

Times = Mapping[DecodeShape, float]
Model = Callable[[Times, Device], tuple[Calibration, Sequence[DecodeShape]]]
"""From all times of a kernel to a calibration, and the shapes whose times it has seen."""


@dataclass(frozen=True, slots=True, order=True)
class SetKey:
    """What is reported together."""

    gpu: str
    framework: str
    version: str
    kv_dtype: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """One held-out shape."""

    shape: DecodeShape
    measured_s: float
    predicted_s: float

    @property
    def error(self) -> float:
        """Relative, positive where the kernel was faster than predicted."""
        return self.predicted_s / self.measured_s - 1


def device_for(gpu: str, kv_dtype: str) -> Device:
    """The catalogue's facts, and a typical GPU's multiprocessors and L2 where it has none."""
    try:
        spec = load_gpu(FILE_NAMES.get(gpu.lower(), gpu))
    except UnknownName:
        return TYPICAL
    rate = spec.flops_per_s.of(kv_format(kv_dtype).name) or spec.flops_per_s.bf16
    return Device(spec.sm_count or TYPICAL.sm_count, spec.l2_bytes or TYPICAL.l2_bytes, spec.bytes_per_s, rate)


def read_times(path: Path) -> dict[SetKey, dict[str, dict[DecodeShape, float]]]:
    """Scored shapes by set and kernel, in seconds; of a shape that stands there twice, the median."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    reader = csv.DictReader(io.StringIO(text))
    if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
        raise BadInput(f"{path}: has no column {missing[0]!r}; needed are {', '.join(COLUMNS)}")
    found: dict[SetKey, dict[str, dict[DecodeShape, list[float]]]] = {}
    for row in reader:
        shape, time_s = _timing(row, f"{path}: line {reader.line_num}")
        if shape.context_tokens >= MIN_CONTEXT_TOKENS and shape.num_heads >= MIN_HEADS:
            key = SetKey(row["gpu"], row["framework"], row["version"], row["kv_dtype"])
            found.setdefault(key, {}).setdefault(row["kernel"], {}).setdefault(shape, []).append(time_s)
    return {
        key: {kernel: {s: statistics.median(ts) for s, ts in times.items()} for kernel, times in kernels.items()}
        for key, kernels in found.items()
    }


def _timing(row: Mapping[str, str], where: str) -> tuple[DecodeShape, float]:
    """One line of the file."""
    try:
        batch, heads, context = (int(row[name]) for name in ("batch", "num_heads", "context_tokens"))
        time_s = float(row["latency_us"]) * 1e-6
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: {error}") from error
    if not (math.isfinite(time_s) and time_s > 0):
        raise BadInput(f"{where}: latency_us is {row['latency_us']}; it must be a positive number")
    record = kv_format(row["kv_dtype"])
    token_bytes = record.of("latent").vector_bytes(LATENT_DIM) + record.of("rope").vector_bytes(ROPE_DIM)
    return DecodeShape(batch, heads, context, kv_bytes_per_token=token_bytes), time_s


def by_datasheet(_times: Times, device: Device) -> tuple[Calibration, Sequence[DecodeShape]]:
    """No probes at all."""
    return datasheet(device), ()


def by_three_probes(times: Times, _device: Device) -> tuple[Calibration, Sequence[DecodeShape]]:
    """The plain roofline t0 + max(bytes / BW, FLOPs / F): each constant from the shape that shows it best."""
    launch, memory, compute = (
        nearest(DecodeShape(*wanted), times) for wanted in ((1, 128, 1024), (256, 16, 8192), (256, 128, 8192))
    )
    t0_s = times[launch]
    bytes_per_s = memory.bytes / max(times[memory] - t0_s, 1e-9)
    flops_per_s = compute.flops / max(times[compute] - t0_s, 1e-9)
    return Calibration(t0_s, bytes_per_s, flops_per_s, IDEAL), (launch, memory, compute)


def by_probes(without: Sequence[str] = (), forms: Callable[[Device], Iterable[KernelForm]] = forms_of) -> Model:
    """The model of `kvplan validate`, less some constants of its calibration or some forms of a kernel."""

    def calibrate(times: Times, device: Device) -> tuple[Calibration, Sequence[DecodeShape]]:
        token_bytes = next(iter(times)).kv_bytes_per_token
        chosen = probe_shapes(device, kv_bytes_per_token=token_bytes, available=times)
        return fit([(s, times[s]) for s in chosen], device, without=without, forms=forms(device)), chosen

    return calibrate


def forms_where(keep: Callable[[KernelForm], bool]) -> Callable[[Device], Iterable[KernelForm]]:
    """The forms that a device's kernel may have, some left out."""
    return lambda device: [form for form in forms_of(device) if keep(form)]


MODELS: Mapping[str, Model] = {
    "probes": by_probes(),
    "datasheet": by_datasheet,
    "three-probes": by_three_probes,
    "plain": by_probes(without=["work_factors"], forms=lambda _: [IDEAL]),
    "plain-by-heads": by_probes(forms=lambda _: [IDEAL]),
}
"""Names of --roofline. plain: the three constants of the plain roofline, fitted to the same probes as the model; by
heads: with a factor for each head count."""

WITHOUT: Mapping[str, Model] = {
    **{
        name: by_probes(without=[name])
        for name in ("item_s", "split_s", "cold_s", "floor_s", "io_bytes_per_s", "l2_bytes_per_s", "work_factors")
    },
    "waves": by_probes(forms=forms_where(lambda form: form.schedule != "waves")),
    "persistent": by_probes(forms=forms_where(lambda form: form.schedule != "persistent")),
    "splitting": by_probes(forms=forms_where(lambda form: form.splits == 1)),
    "fixed_splits": by_probes(forms=forms_where(lambda form: form.splits is None)),
    "narrow_tiles": by_probes(forms=forms_where(lambda form: form.row_tile == 64)),
    "wide_tiles": by_probes(forms=forms_where(lambda form: form.row_tile == 16)),
    "dequantise_pass": by_probes(forms=forms_where(lambda form: form.overlap)),
}
"""Names of --without: the model with one refinement taken away."""


def predictions(kernels: Mapping[str, Times], device: Device, model: Model) -> list[Prediction]:
    """All held-out shapes of a set, kernel by kernel; none of a kernel with too few shapes to probe and predict."""
    found = []
    for times in kernels.values():
        if len(times) < MIN_SHAPES:
            continue
        calibration, seen = model(times, device)
        found += [
            Prediction(shape, time_s, predict_s(shape, calibration, device))
            for shape, time_s in times.items()
            if shape not in seen
        ]
    return found


def _share(errors: Sequence[float], bound: float) -> float | None:
    return sum(error <= bound for error in errors) / len(errors) if errors else None


def scores(key: SetKey, found: Sequence[Prediction]) -> dict[str, str | int | float | None]:
    """What is reported of a set; errors and shares are fractions, None where no shape is left."""
    errors = [abs(p.error) for p in found]
    large = [abs(p.error) for p in found if p.measured_s > LARGE_S]
    return {
        "gpu": key.gpu,
        "framework": key.framework,
        "version": key.version,
        "kv_dtype": key.kv_dtype,
        "n": len(errors),
        "median_error": statistics.median(errors) if errors else None,
        "within_10": _share(errors, 0.10),
        "within_20": _share(errors, 0.20),
        "n_over_40us": len(large),
        "median_error_over_40us": statistics.median(large) if large else None,
        "within_10_over_40us": _share(large, 0.10),
    }


def _percent(value: float | None) -> str:
    return "    -" if value is None else f"{100 * value:5.1f}"


def lines(results: Sequence[tuple[SetKey, Sequence[Prediction]]], worst: int) -> Iterable[str]:
    """A table for people: one line per set, then its worst shapes."""
    yield f"{'set':44} {'n':>4} {'median %':>8} {'in 10 %':>7} {'in 20 %':>7}   over 40 us: median %, in 10 %"
    for key, found in results:
        row = scores(key, found)
        name = f"{key.gpu} {key.framework} {key.version} {key.kv_dtype}"
        cells = [_percent(row[k]) for k in ("median_error", "within_10", "within_20")]  # type: ignore[arg-type]
        large = [_percent(row[k]) for k in ("median_error_over_40us", "within_10_over_40us")]  # type: ignore[arg-type]
        yield f"{name:44} {row['n']:4} {cells[0]:>8} {cells[1]:>7} {cells[2]:>7}   {large[0]:>20} {large[1]:>7}"
        for p in sorted(found, key=lambda p: -abs(math.log1p(p.error)))[:worst]:
            s = p.shape
            where = f"batch {s.batch}, {s.num_heads} heads, {s.context_tokens} tokens"
            yield f"    {where:36} {p.measured_s * 1e6:9.1f} us, predicted {p.predicted_s * 1e6:9.1f} ({p.error:+.0%})"


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 with one line on stderr for input that cannot be read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    parser.add_argument("--roofline", choices=list(MODELS), default="probes")
    parser.add_argument("--without", choices=list(WITHOUT), help="take one refinement away")
    parser.add_argument("--worst", type=int, default=3, metavar="N", help="worst shapes shown of each set")
    args = parser.parse_args(argv)
    model = WITHOUT[args.without] if args.without else MODELS[args.roofline]
    try:
        results = [
            (key, predictions(kernels, device_for(key.gpu, key.kv_dtype), model))
            for key, kernels in sorted(read_times(args.file).items())
        ]
    except (KvplanError, OSError) as error:
        print(f"mla_backtest: {error}", file=sys.stderr)
        return 1
    if args.format == "json":
        print(json.dumps({"sets": [scores(key, found) for key, found in results]}, indent=1))
    else:
        print("\n".join(lines(results, args.worst)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
