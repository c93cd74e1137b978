"""The heart: a layer's cache is a few tensors, each with a law for how many slots a context needs.

`CacheTensor` = heads x dim elements per slot, and a `Law`. Three numbers must never be mixed: *logical* bytes (what the
mathematics must keep; this module), *reserved* bytes (what an engine takes for the same tokens; `kvplan.engines`) and
*read* bytes (what one decode step moves; `CacheTensor.read_slots`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

from kvplan.arith import cdiv, minimum

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.storage import KvFormat, Role


@dataclass(frozen=True, slots=True)
class PerToken:
    """One slot for every `ratio` tokens, rounded up: full attention (1), or compression along the sequence."""

    ratio: int = 1
    law: Literal["per_token"] = "per_token"

    def slots(self, tokens: Ints) -> Ints:
        """ceil(tokens / ratio)."""
        return tokens if self.ratio == 1 else cdiv(tokens, self.ratio)

    def slots_per_token(self) -> Fraction:
        """The slope."""
        return Fraction(1, self.ratio)


@dataclass(frozen=True, slots=True)
class Window:
    """The last `tokens` tokens: a sliding window, one attention chunk, or the top-k that a sparse step reads."""

    tokens: int
    law: Literal["window"] = "window"

    def slots(self, tokens: Ints) -> Ints:
        """min(tokens, window)."""
        return minimum(tokens, self.tokens)

    def slots_per_token(self) -> Fraction:
        """0: it stops growing."""
        return Fraction(0)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same number of slots whatever the context: recurrent states (1), encoder tokens."""

    count: int = 1
    law: Literal["fixed"] = "fixed"

    def slots(self, tokens: Ints) -> Ints:
        """`count`, in the shape of `tokens`."""
        return self.count if isinstance(tokens, int) else tokens * 0 + self.count

    def slots_per_token(self) -> Fraction:
        """0."""
        return Fraction(0)


Law: TypeAlias = PerToken | Window | Fixed


@dataclass(frozen=True, slots=True)
class CacheTensor:
    """`heads` x `dim` elements for each slot that `law` asks for.

    Tensor parallelism shares out heads, so a tensor of one head (an MLA latent, an indexer key) is on every rank
    because it has one head. `reads`: the law of what one decode step moves, where that is less than what is stored.
    """

    role: Role
    heads: int
    dim: int
    law: Law
    reads: Law | None = None

    @property
    def grows(self) -> bool:
        """Whether it grows with the context without bound."""
        return isinstance(self.law, PerToken)

    @property
    def elements_per_slot(self) -> int:
        """Elements of one slot over all heads."""
        return self.heads * self.dim

    def bytes_per_slot(self, kv_format: KvFormat, tp: int = 1, dcp: int = 1) -> int:
        """Bytes of one slot on the fullest of `tp` ranks.

        Ranks that divide the sequence among themselves (`dcp` of the tp) hold the same heads.
        """
        sharers = tp // dcp if self.grows else tp
        return cdiv(self.heads, sharers) * kv_format.of(self.role).vector_bytes(self.dim)

    def slots(self, tokens: Ints, dcp: int = 1) -> Ints:
        """Slots on one of `dcp` ranks that divide the sequence; only what grows can be divided."""
        return self.law.slots(cdiv(tokens, dcp) if dcp > 1 and self.grows else tokens)

    def read_slots(self, tokens: Ints, dcp: int = 1) -> Ints:
        """Slots that one decode step reads."""
        law = self.reads or self.law
        return law.slots(cdiv(tokens, dcp) if dcp > 1 and self.grows else tokens)
