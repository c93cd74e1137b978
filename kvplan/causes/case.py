"""One difference with all that is known around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvplan.errors import KvplanError

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.plan import Scenario
    from kvplan.reconcile.comparison import Comparison
    from kvplan.reconcile.predict import Prediction

CAPACITY = frozenset({
    "num_gpu_blocks", "profiled_num_gpu_blocks", "kv_tokens", "max_total_num_tokens", "full_tokens", "max_concurrency",
    "needed_kv_bytes", "estimated_max_model_len", "block_size", "attention_block_size",
})  # fmt: skip
"""Figures that follow from the pool as printed."""
SLOTS = frozenset({
    "pool_kv_bytes", "pool_full_bytes", "pool_swa_bytes", "pool_window_bytes", "per_token_bytes", "allocated_kv_bytes",
    "kv_cells",
})  # fmt: skip
"""Figures that follow from slots as printed, or from the context that was asked for."""
POOLS = frozenset({"available_kv_bytes", "kv_pool_bytes", "allocated_kv_bytes"})
"""Pools that follow from the budget."""

Under = Callable[..., Mapping[str, "Comparison"]]
"""Comparisons by quantity under the same scenario with some fields changed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A comparison that differs. `under`: what another scenario would predict."""

    observed: Observed
    predicted: Prediction
    comparison: Comparison
    under: Under

    @property
    def scenario(self) -> Scenario:
        """What the log was taken for."""
        return self.predicted.scenario

    @property
    def quantity(self) -> str:
        """Which figure differs."""
        return self.comparison.quantity

    @property
    def ratio(self) -> float:
        """Observed over predicted; 0 where nothing was predicted."""
        return self.comparison.observed / self.comparison.predicted if self.comparison.predicted else 0.0

    @property
    def gap(self) -> float:
        """Observed less predicted."""
        return self.comparison.observed - self.comparison.predicted

    def agrees_under(self, **changes: Any) -> bool:
        """Whether the figure would be predicted rightly with these fields of the scenario changed."""
        others = self._under(changes)
        return self.quantity in others and others[self.quantity].agrees

    def all_agree_under(self, **changes: Any) -> bool:
        """Whether every figure that follows from the pool would be too: one alone may agree by chance."""
        others = self._under(changes)
        return self.agrees_under(**changes) and all(c.agrees for q, c in others.items() if q in CAPACITY | SLOTS)

    def _under(self, changes: Mapping[str, Any]) -> Mapping[str, Comparison]:
        try:
            return self.under(**changes)
        except KvplanError:
            return {}

    def has_flag(self, *names: str) -> bool:
        """Whether the log states one of these flags."""
        return any(self.observed.flags.get(name) is not None for name in names)


Rule = Callable[[Case], str | None]
"""A cause in words, where the numbers support it; None where they do not."""
