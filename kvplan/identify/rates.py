"""Which of several models a pool's bytes per token belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.model import cost_line
from kvplan.parallel import Parallelism
from kvplan.storage import kv_format

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.model import ModelSpec

_GROWING = {"kv", "full"}
_RANKS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes of one token in all growing layers of a rank, with half a unit of the print."""

    bytes_per_token: float
    half: float
    dtype: str | None

    def fits(self, spec: ModelSpec) -> bool:
        """Whether the model costs as much on some usual number of ranks."""
        return any(abs(cost - self.bytes_per_token) <= self.half for cost in self._costs(spec))

    def _costs(self, spec: ModelSpec) -> Iterator[float]:
        dtypes = (self.dtype,) if self.dtype else (spec.torch_dtype, "fp8")
        for dtype in dtypes:
            for tp in _RANKS:
                try:
                    yield float(cost_line(spec, 1, kv_format(dtype), Parallelism(tp=tp)).bytes_per_token)
                except KvplanError:
                    continue


def rate_of(observed: Observed) -> Rate | None:
    """What the first pool of growing layers costs a token; None where no pool says both bytes and slots."""
    for pool in observed.pools:
        parts = [pool.total] if pool.total else list(pool.parts.values())
        if pool.kind in _GROWING and pool.context == 0 and pool.slots and parts:
            slots = pool.slots * (pool.streams or 1)
            types = {t.removeprefix("torch.") for t in pool.types.values()}
            size, resolution = sum(p.number for p in parts), sum(p.resolution for p in parts)
            spare = size / slots  # the page that SGLang allocates beside them costs some tokens more
            return Rate(size / slots, (resolution / 2 + 64 * spare) / slots, types.pop() if len(types) == 1 else None)
    return None


def fitting(specs: Iterable[ModelSpec], observed: Observed) -> list[ModelSpec]:
    """Those of the models that cost what the log's pool costs; all of them where it says nothing."""
    rate = rate_of(observed)
    return [spec for spec in specs if rate is None or rate.fits(spec)]
