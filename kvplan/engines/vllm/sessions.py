"""How many blocks a session of n tokens holds, in closed form: group by group, and over all groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, minimum

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.engines.vllm.geometry import Geometry
    from kvplan.engines.vllm.mixers import Same
    from kvplan.engines.vllm.pages import PageSpec


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that one session of n tokens holds in one group: ceil(min(n, cap) / span) + extra, or `extra` alone.

    `span`: tokens that one block covers over all ranks that divide the sequence; 0 where no token counts.
    """

    span: int
    cap_tokens: int | None
    extra: int

    def of(self, tokens: Ints) -> Ints:
        """Blocks for `tokens` tokens."""
        if not self.span:
            return tokens * 0 + self.extra
        held = tokens if self.cap_tokens is None else minimum(tokens, self.cap_tokens)
        return cdiv(held, self.span) + self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """What a running engine adds to a session's blocks.

    `tokens`: scheduled and not settled yet, all concurrent batches together. `retained`: tokens below a window that
    multi-token prediction still reads. `encoder_tokens`: the longest encoder input. `dcp`: ranks that divide a
    sequence.
    """

    tokens: int
    retained: int = 0
    encoder_tokens: int = 0
    dcp: int = 1


def blocks_of(pages: PageSpec, flight: InFlight) -> Blocks:
    """The law of one kind of layer (vllm.md section 4)."""
    size = pages.block_size or 1
    if pages.growth == "full":
        return Blocks(size * flight.dcp, None, 0)
    if pages.growth == "state per block":
        return Blocks(size, None, pages.states)
    if pages.growth == "sliding":
        return Blocks(size, pages.bound - 1 + flight.retained + flight.tokens, 1)
    if pages.growth == "chunked":
        return Blocks(size, pages.bound + flight.tokens, 0)
    return Blocks(0, None, cdiv(flight.encoder_tokens, size) if pages.growth == "encoder" else pages.states)


@dataclass(frozen=True, slots=True)
class SessionBlocks:
    """The laws of all groups, and the same with alike ones counted."""

    per_group: tuple[Blocks, ...]
    counted: tuple[tuple[Blocks, int], ...]

    def of_groups(self, tokens: int) -> tuple[int, ...]:
        """Blocks of one session of `tokens` tokens in each group."""
        held = {law: int(law.of(tokens)) for law, _ in self.counted}
        return tuple(held[law] for law in self.per_group)

    def of(self, tokens: Ints) -> Ints:
        """Blocks of one session over all groups."""
        total: Ints = tokens * 0
        for law, count in self.counted:
            total = total + law.of(tokens) * count
        return total


@lru_cache(maxsize=2048)
def session_blocks(planned: Same[Geometry], flight: InFlight) -> SessionBlocks:
    """The laws of a geometry under what is in flight; one look-up for all contexts and pools."""
    laws = tuple(blocks_of(group.pages, flight) for group in planned.value.groups)
    return SessionBlocks(laws, tuple(Counter(laws).items()))
