"""Templates read as the lines they look like."""

from __future__ import annotations

import pytest

from kvplan.logs.patterns import Pattern
from kvplan.logs.quantities import QUANTITIES
from kvplan.logs.reader import log_formats
from kvplan.units import GIB, MIB

ALL = [(each.engine, pattern) for each in log_formats() for pattern in each.patterns]


def _values(template: str, text: str) -> dict[str, object] | None:
    pattern = Pattern(b"", template)
    found = pattern.match(text)
    return {name: value for name, (value, _) in pattern.values(found).items()} if found else None


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        ("took <weights:gib> GiB", "took 14.2683 GiB", {"weights_bytes": round(14.2683 * GIB)}),
        ("take <weights:gib> GiB", "take 14.99GiB", {"weights_bytes": round(14.99 * GIB)}),
        ("size = <total:mib> MiB", "size  =    9.00 MiB", {"total_bytes": 9 * MIB}),
        ("took <graph:gib> GiB", "took -0.03 GiB", {"graph_bytes": round(-0.03 * GIB)}),
        ("size: <n:count> tokens", "size: 1,009,661 tokens", {"n": 1009661}),
        ("sizes [<n:list>]", "sizes [2848, 2848, 8]", {"n": (2848, 2848, 8)}),
        ("end. ...usage=<n:number>,", "end. elapsed=1 s, usage=0.45, avail=2", {"n": 0.45}),
        ("a <x:word> b <y:count>c", "log: a torch.bfloat16 b 7c", {"x": "torch.bfloat16", "y": 7}),
    ],
)
def test_a_template_reads_the_line_it_looks_like(template: str, text: str, expected: dict[str, object]) -> None:
    assert _values(template, text) == expected


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("size: <n:count> tokens", "size: 12,34 tokens"),
        ("size: <n:count> tokens", "size: 1234567890123456789 tokens"),
        ("took <n:gib> GiB", "took 1.2.3 GiB"),
        ("took <n:gib> GiB", "took 14.2"),
        ("took <n:gib> GiB", "prompt: 'took 14.2 GiB"),
        ("took <n:gib> GiB", '"POST /v1" took 14.2 GiB'),
        ("end. ...usage=<n:number>,", "end. " + "x" * 500 + "usage=0.45,"),
    ],
)
def test_what_is_no_whole_value_or_stands_in_quotes_is_not_read(template: str, text: str) -> None:
    assert _values(template, text) is None


def test_a_value_that_ends_a_cut_line_is_not_read() -> None:
    pattern = Pattern(b"", "num_gpu_blocks is: <n:count>")

    assert pattern.match("num_gpu_blocks is: 297", complete=False) is None
    assert pattern.match("num_gpu_blocks is: 297", complete=True)
    assert pattern.match("num_gpu_blocks is: 297.", complete=False)


@pytest.mark.parametrize(
    ("printed", "resolution"), [("8.11", 0.01), ("20.0", 0.01), ("4.3752", 0.0001), ("0.8999999761581421", 1e-16)]
)
def test_a_size_keeps_the_resolution_of_its_print(printed: str, resolution: float) -> None:
    pattern = Pattern(b"", "<n:gib> GiB")
    found = pattern.match(f"{printed} GiB")

    assert found is not None
    assert pattern.values(found)["n_bytes"] == (round(float(printed) * GIB), pytest.approx(resolution * GIB))


def test_a_long_line_of_beginnings_is_given_up_at_once() -> None:
    text = "Load weight end. " * 4000

    assert all(pattern.match(text) is None for _, pattern in ALL)


@pytest.mark.parametrize(("engine", "pattern"), ALL, ids=lambda value: getattr(value, "template", value))
def test_every_reading_of_every_engine_is_explained(engine: str, pattern: Pattern) -> None:
    structural = {"pool", "states", "window", "entry", "context", "model", "next pool", "self size", "flags"}
    plain = {name for name in pattern.units if name != "device"} if pattern.kind not in structural else set()

    assert plain <= QUANTITIES.keys(), engine
