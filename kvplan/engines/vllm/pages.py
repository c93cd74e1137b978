"""Pages: how vLLM cuts one layer's cache into blocks of tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from kvplan.arith import round_up

Growth = Literal["full", "sliding", "chunked", "state", "state per block", "encoder"]
"""full: every token. sliding: a window, and the tokens in flight. chunked: one chunk, and those. state: a recurrent
state, whatever the context. state per block: a state kept at the end of every block (mamba_cache_mode all). encoder:
what cross attention reads, fixed by the batch."""
_STATES = ("state", "state per block")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One layer's cache in vLLM's terms (`KVCacheSpec`).

    `block_size`: tokens of one block; None for a state whose block is the whole context. `state_bytes`: one stored slot
    over all heads of this rank, of which each covers `tokens_per_state` tokens; for a recurrent state, all of it.
    `bound`: the window or chunk in tokens. `latent`: an MLA record, whose page cannot be padded at will.
    `geometry`: what else must agree for layers to share a group. `align_bytes`: pages round up to it. `padded_bytes`:
    the page that a sibling forces. `kernel_block`: blocks split into kernel blocks of at most so many tokens;
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
        return 1 if kernel == self.block_size else self.with_block(kernel).page_bytes

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
