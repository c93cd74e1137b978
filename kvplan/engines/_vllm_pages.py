"""Pages: how vLLM cuts one layer's cache into blocks of tokens, and how many blocks a session of n tokens holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Literal

from kvplan.arith import cdiv, minimum, round_up

if TYPE_CHECKING:
    from kvplan.arith import Ints

Growth = Literal["full", "sliding", "chunked", "state", "state per block", "encoder"]
"""full: every token. sliding: a window, and the tokens in flight. chunked: one chunk, and those. state: a recurrent state,
whatever the context. state per block: a state kept at the end of every block (mamba_cache_mode all). encoder: what cross
attention reads, fixed by the batch."""
_STATES = ("state", "state per block")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One layer's cache in vLLM's terms (`KVCacheSpec`).

    `block_size`: tokens of one block; None for a state whose block is the whole context. `state_bytes`: one stored slot
    over all heads of this rank, of which each covers `tokens_per_state` tokens; for a recurrent state, all of it.
    `bound`: the window or chunk in tokens. `latent`: an MLA record, whose page cannot be padded at will.
    `geometry`: what else must agree for layers to share a group. `align_bytes`: pages round up to it. `padded_bytes`: the
    page that a sibling forces. `kernel_block`: blocks split into kernel blocks of at most so many tokens;
    `stride_bytes`: blocks lie whole multiples of this apart. `states`: blocks that one session holds of a state.
    """

    growth: Growth
    block_size: int | None
    state_bytes: int
    tokens_per_state: int = 1
    bound: int = 0
    latent: bool = False
    geometry: tuple[int | str, ...] = ()
    align_bytes: int = 1
    padded_bytes: int = 0
    kernel_block: int = 0
    stride_bytes: int = 1
    states: int = 0

    @property
    def is_state(self) -> bool:
        """Whether a block holds one recurrent state rather than tokens."""
        return self.growth in _STATES

    @property
    def own_bytes(self) -> int:
        """One block of this layer before a sibling pads it."""
        if self.is_state or self.block_size is None:
            return self.state_bytes
        return round_up(self.state_bytes * (self.block_size // self.tokens_per_state), self.align_bytes)

    @property
    def page_bytes(self) -> int:
        """One block of this layer."""
        return max(self.own_bytes, self.padded_bytes)

    @property
    def stride_alignment_bytes(self) -> int:
        """What the distance between two blocks must be a multiple of."""
        if not self.kernel_block or self.block_size is None:
            return self.stride_bytes
        kernel = gcd(self.kernel_block, self.block_size)
        return 1 if kernel == self.block_size else self.with_block(kernel).own_bytes

    @property
    def kind(self) -> tuple[int | str | bool | None, ...]:
        """Layers of the same kind need the same number of slots and may share a group whatever their pages."""
        if self.growth == "full":
            return ("full", self.block_size)
        if self.is_state:
            return (self.growth, self.block_size, self.page_bytes, self.states)
        return (self.growth, self.block_size, self.bound, self.latent)

    def with_block(self, block_size: int) -> PageSpec:
        """The same layer in blocks of so many tokens."""
        return replace(self, block_size=block_size)

    def padded_to(self, size: int) -> PageSpec:
        """The same layer in pages of `size` bytes."""
        return replace(self, padded_bytes=size)

    def grown(self, block_size: int | None) -> PageSpec:
        """The same layer with a block for every token, as the hybrid manager's absence makes of windows and chunks."""
        return replace(self, growth="full", bound=0, block_size=block_size or self.block_size)


@dataclass(frozen=True, slots=True)
class Layer:
    """One cache of one layer: its name, its pipeline stage, its pages."""

    name: str
    stage: int
    pages: PageSpec


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
    multi-token prediction still reads. `encoder_tokens`: the longest encoder input. `dcp`: ranks that divide a sequence.
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
