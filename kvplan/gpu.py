"""What a GPU is to a plan: memory as its driver reports it, bandwidth, dense arithmetic rates, each with its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from kvplan.errors import BadInput, UnknownName

_CAPACITY = re.compile(r"(?<=\d)[\s_-]*gi?b?(?![a-z0-9])")
_BRANDS = re.compile(r"nvidia|amd|intel|huawei|geforce|instinct|tesla|habana|[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Dense flop/s (operations for int8) by dtype, accumulating in 32 bits; None where unknown or not supported."""

    fp32: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    fp4: float | None = None

    def of(self, dtype: str) -> float | None:
        """The rate of one dtype name; None for a dtype without a figure."""
        return getattr(self, dtype, None) if dtype in _DTYPES else None


_DTYPES = frozenset(f.name for f in fields(Rates))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """The fastest link to the other GPUs of one host: bytes per second that one GPU sends, all its links together."""

    kind: Literal["nvlink", "pcie", "infinity_fabric", "ethernet", "hccs"]
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """One device as an engine sees it. What no source states is None, never a guess.

    `memory_bytes`: the total that the driver reports to an engine (torch `total_memory`), below the figure on the box.
    `memory_kind`: unified memory is shared with the CPU. `bytes_per_s`, `flops_per_s`: peaks, without sparsity.
    `compute_capability`: NVIDIA's (major, minor); `gfx`: AMD's target. `sm_count`: multiprocessors or compute units.
    `shared_memory_per_block_bytes`: the most that a kernel can opt in to. `measured_*`: the best that was measured.
    `sources`: field name -> where its figure is from; a figure without one is an error.
    """

    name: str
    vendor: str
    architecture: str
    memory_bytes: int
    aliases: tuple[str, ...] = ()
    memory_kind: Literal["dedicated", "unified"] = "dedicated"
    bytes_per_s: float | None = None
    flops_per_s: Rates = Rates()
    compute_capability: tuple[int, int] | None = None
    gfx: str | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    shared_memory_per_block_bytes: int | None = None
    interconnect: Interconnect | None = None
    measured_bytes_per_s: float | None = None
    measured_flops_per_s: Rates = Rates()
    note: str = ""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.memory_bytes < 2**28:
            raise BadInput(f"memory_bytes: {self.memory_bytes} is too small; write bytes, 80 GiB = 85899345920")
        given = {name for name in _FIGURES if getattr(self, name) not in (None, Rates())}
        for name in sorted(given - set(self.sources)):
            raise BadInput(f"sources.{name}: is missing; every figure names where it is from")
        for name in sorted(set(self.sources) - given):
            raise BadInput(f"sources.{name}: no figure of that name is given")
        for name, text in self.sources.items():
            if not text.strip():
                raise BadInput(f"sources.{name}: is empty")


_FIGURES = frozenset(f.name for f in fields(GpuSpec)) - {
    "name", "vendor", "architecture", "aliases", "memory_kind", "note", "sources"
}  # fmt: skip


def spelling(name: str) -> str:
    """What all spellings of a name share: `NVIDIA H100-80GB`, `h100_80g` -> `h10080g`."""
    return _BRANDS.sub("", _CAPACITY.sub("g", name.lower()))


def find(name: str, spellings: Mapping[str, Iterable[str]]) -> str:
    """The catalogue name of a GPU, spelt as people and drivers spell it. `spellings`: catalogue name -> other names."""
    wanted = spelling(name)
    found = [gpu for gpu, names in spellings.items() if wanted in {spelling(gpu), *map(spelling, names)}]
    if len(found) > 1:
        raise UnknownName(f"GPU {name!r} is one of {', '.join(sorted(found))}; say which")
    if not found:
        raise UnknownName.of("GPU", name, {n for gpu, names in spellings.items() for n in (gpu, *names)})
    return found[0]
