"""What kvplan predicts for a row of the observations, beside what the engine printed: three checks.

`rate`: bytes per token of the layout. `capacity`: tokens, blocks and concurrency of the printed pool. `pool`: the pool
itself, and the lines that lead to it. Each is None where the row does not state enough for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from benchmarks.observed_rows import V0_RELEASES, Row
from kvplan.budget import Budget
from kvplan.engines.base import Deployment, Layout
from kvplan.engines.vllm.memory import weights as weights_line
from kvplan.engines.vllm.start import start
from kvplan.engines.vllm.versions import rules
from kvplan.errors import KvplanError
from kvplan.units import GIB, MIB

UPSTREAM = frozenset({"vllm", "sglang", "tensorrt-llm"})
"""Engines whose memory rule is known; forks and plug-ins for other devices have rules of their own."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes per token: by the collectors' arithmetic on the log, and of kvplan's layout (of the nearest release)."""

    row: Row
    expected: int
    found: Fraction | None
    reason: str

    @property
    def agrees(self) -> bool:
        """Whether they are equal."""
        return self.found == self.expected


@dataclass(frozen=True, slots=True)
class Figure:
    """One printed figure, and what kvplan computes of the printed pool: at its centre, and over its rounding."""

    name: str
    printed: float
    found: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Distance of the print from what the pool's rounding allows, as a share of it."""
        if self.low <= self.printed <= self.high:
            return 0.0
        return min(abs(self.printed - self.low), abs(self.printed - self.high)) / self.printed


@dataclass(frozen=True, slots=True)
class CapacityCheck:
    """Figures of one row under the release that fits best; `reason` where the engine refuses the row."""

    row: Row
    release: str
    figures: tuple[Figure, ...]
    reason: str = ""

    @property
    def error(self) -> float:
        """The worst of them; 1 where kvplan gives none."""
        return max((f.error for f in self.figures), default=1.0)


@dataclass(frozen=True, slots=True)
class PoolCheck:
    """The pool that the engine printed, and kvplan's budget for it."""

    row: Row
    release: str
    printed_bytes: int
    budget: Budget

    @property
    def error(self) -> float:
        """Predicted over printed, less 1."""
        return self.budget.kv_pool_bytes / self.printed_bytes - 1

    @property
    def inside(self) -> bool:
        """Whether the print lies in the range that kvplan states, to its rounding."""
        low, high = self.budget.kv_pool_range
        slack = self.row.pool_rounding_bytes
        return low - slack <= self.printed_bytes <= high + slack

    @property
    def width(self) -> float:
        """Width of that range as a share of the print."""
        low, high = self.budget.kv_pool_range
        return (high - low) / self.printed_bytes

    def line(self, label: str) -> Any:
        """A budget line by its label."""
        return next(line for line in (*self.budget.lines, *self.budget.beside) if line.label == label)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of one rank as printed, and as kvplan counts them."""

    row: Row
    printed_gib: float
    found_bytes: int

    @property
    def error(self) -> float:
        """Counted over printed, less 1."""
        return self.found_bytes / GIB / self.printed_gib - 1


def layouts(row: Row) -> Iterator[tuple[str, Deployment, Layout]]:
    """The row under each release, and on each kind of GPU, that it may be of; those that refuse it are left out."""
    for release in row.releases():
        for scenario in row.scenarios(release):
            try:
                engine, deployment = scenario.deployment()
                yield release, deployment, engine.layout(deployment)
            except KvplanError:
                continue


def refusal(row: Row) -> str:
    """Why the last release refuses the row."""
    try:
        engine, deployment = row.scenario(row.releases()[-1]).deployment()
        engine.layout(deployment)
    except KvplanError as reason:
        return str(reason)
    return ""


def rate(row: Row) -> Rate | None:
    """For rows whose bytes per token the collectors confirmed exactly, of an engine and a model that kvplan knows."""
    if row.get("check_verdict") != "exact" or row.model is None or row.engine is None:
        return None
    expected = int(row.get("check_expected_bytes"))
    found = [_printed_rate(row, release, layout) for release, _, layout in layouts(row)]
    known = [f for f in found if f is not None]
    best = min(known, key=lambda f: abs(f - expected), default=None)
    return Rate(row, expected, best, "" if known else refusal(row))


def _printed_rate(row: Row, release: str, layout: Any) -> Fraction | None:
    """Bytes of the pool for one printed token."""
    if row.engine == "vllm":
        groups = layout.geometry.groups if rules(release).printed_tokens == "blocks per group" else [None]
        return Fraction(layout.bytes_per_block * len(groups), layout.block_size)
    spare = layout.pool_bytes(row.part, 0) or 0
    slots = 2**20
    size = layout.pool_bytes(row.part, slots)
    return None if size is None else Fraction(size - spare, slots)


def capacity(row: Row) -> CapacityCheck | None:
    """For rows that print a pool, and tokens, blocks or concurrency of the same rank."""
    printed = list(_printed(row))
    size = row.get("kv_total_mib_reported") if row.engine == "llama.cpp" else row.pool_bytes
    if row.model is None or row.engine is None or not size or not printed or _of_another_rank(row):
        return None
    checks = [CapacityCheck(row, release, tuple(_figures(row, layout, printed))) for release, _, layout in layouts(row)]
    return min(checks, key=lambda c: c.error, default=CapacityCheck(row, "", (), refusal(row)))


def _of_another_rank(row: Row) -> bool:
    """vLLM's tokens are those of the rank with the fewest: with pipeline stages, or a drafter of layers that nobody
    states on one of them, the memory line is of another."""
    return row.engine == "vllm" and ((row.get("pp") or 1) > 1 or row.unknown_drafter)


def _printed(row: Row) -> Iterator[tuple[str, float]]:
    if row.engine == "llama.cpp":
        if row.get("cells") and row.get("check_verdict") == "exact":
            yield "MiB", row.get("kv_total_mib_reported")
        return
    tokens = row.get("kv_tokens") or row.get("max_total_num_tokens")
    for name, value in (
        ("tokens", tokens),
        ("blocks", row.get("num_gpu_blocks")),
        ("concurrency", row.get("max_concurrency")),
    ):
        if value:
            yield name, value


def _figures(row: Row, layout: Any, printed: list[tuple[str, float]]) -> Iterator[Figure]:
    if row.engine == "llama.cpp":
        size = (layout.pool_bytes(row.part, row.get("cells")) or 0) / MIB
        yield Figure("MiB", printed[0][1], size, size - 0.005, size + 0.005)
        return
    pool, half = row.pool_bytes or 0, row.pool_rounding_bytes
    low, centre, high = (_capacity(row, layout, pool + step) for step in (-half, 0, half))
    for name, value in printed:
        slack = 0.005 if name == "concurrency" else 0.0
        yield Figure(name, value, centre[name], low[name] - slack, high[name] + slack)


def _capacity(row: Row, layout: Any, pool_bytes: int) -> dict[str, float]:
    """Tokens, blocks and concurrency. Other engines than vLLM print each pool by itself, divided into its own slots."""
    if row.engine == "vllm":
        found = layout.capacity(pool_bytes)
        return {"tokens": found.kv_tokens, "blocks": found.num_blocks, "concurrency": found.max_concurrency}
    if row.part == "kv" and row.get("kv_size_gb") and layout.window_cell_bytes:
        tokens = int(layout.kv_tokens(pool_bytes))
    else:
        spare = layout.pool_bytes(row.part, 0) or 0
        cost = Fraction((layout.pool_bytes(row.part, 2**20) or 0) - spare, 2**20)
        tokens = int((pool_bytes - spare) / cost) if cost else 0
    return {"tokens": tokens, "blocks": tokens // layout.block_size, "concurrency": tokens / layout.max_model_len}


def pool_gap(row: Row) -> str:
    """What a row lacks for a budget to be made and compared; nothing where it states enough."""
    fraction = row.get("gpu_memory_utilization") or row.get("mem_fraction_static") or row.engine != "sglang"
    gaps = (
        ("a fork, a plug-in or an engine without a budget", row.get("engine") not in UPSTREAM),
        ("no pool printed", not row.pool_bytes),
        ("model, or the copy that was loaded, not known", row.model is None or row.model.cache_only),
        ("GPU memory not stated", not row.memory_known),
        ("memory fraction not stated", not fraction),
        ("number of ranks not stated", "tp" in (row.get("inferred") or ())),
        ("release not stated", row.engine == "vllm" and len(row.releases()) > len(V0_RELEASES)),
        ("a drafter of unknown weights", row.unknown_drafter),
        ("memory of a rank that does not sample", row.engine == "vllm" and _other_rank_of_v0(row)),
    )
    return next((reason for reason, lacks in gaps if lacks), "")


def pool(row: Row) -> PoolCheck | None:
    """For rows that state what a budget needs."""
    for release, deployment, layout in () if pool_gap(row) else layouts(row):
        engine, _ = row.scenario(release).deployment()
        return PoolCheck(row, release, _binding_pool(row, layout), engine.budget(deployment, layout, {}))
    return None


def _other_rank_of_v0(row: Row) -> bool:
    """In the V0 engine only the first rank samples; the line of another says nothing of the pool unless tokens do."""
    printed = row.get("kv_tokens") or row.get("num_gpu_blocks")
    return row.releases()[0] in V0_RELEASES and (row.get("tp") or 1) > 1 and not printed


def _binding_pool(row: Row, layout: Any) -> int:
    """The pool that the engine works with.

    vLLM takes the fewest blocks of all ranks, and prints the memory of one: where tokens cost a plain rate they say
    more. SGLang prints the K and V of a hybrid without its states.
    """
    size = row.pool_bytes or 0
    if row.engine != "vllm":
        return int(size * (1 + layout.state_ratio)) if layout.state_bytes else size
    tokens = row.get("kv_tokens")
    if tokens and len(layout.geometry.groups) == 1 and layout.dcp == 1:
        return min(size, int(tokens * layout.bytes_per_block // layout.block_size))
    return size


def weights(row: Row) -> Weights | None:
    """For rows that print weights and say on how many ranks, and whose copy of the model is known."""
    printed, tp = row.get("weights_gib"), row.get("tp")
    if not printed or not tp or row.model is None or row.model.cache_only or row.get("engine") not in UPSTREAM:
        return None
    for _, deployment, layout in layouts(row):
        return Weights(row, printed, weights_line(start(deployment, layout)).bytes)
    return None
