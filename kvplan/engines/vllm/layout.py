"""The answer: blocks, tokens and sessions for any pool, in closed form, as one release prints and admits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import lcm
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, maximum, minimum
from kvplan.engines.base import Capacity
from kvplan.engines.vllm.fit import NO_MEMORY, does_not_fit, exceeds_tokens, last_true

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.engines.vllm.geometry import Geometry
    from kvplan.engines.vllm.groups import Group
    from kvplan.engines.vllm.sessions import SessionBlocks
    from kvplan.engines.vllm.settings import Batch
    from kvplan.engines.vllm.versions import Rules
    from kvplan.storage import KvFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmCapacity(Capacity):
    """What this release prints, and what it is made of. `max_model_len`: after auto-fit, where -1 was asked for."""

    max_model_len: int
    blocks_per_request: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group for people, on the fullest stage: its layers, what they are, and its padding.

    `padding_bytes`: what one block of the pool leaves unused when this group holds it.
    """

    layers: int
    growth: str
    block_size: int
    page_bytes: int
    padding_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLayout:
    """How one release cuts the cache of one deployment. Bytes and tokens are per rank.

    `auto_fit`: `max_model_len` is only the most, and the pool decides. `remarks`: what was taken for granted.
    """

    geometry: Geometry
    rules: Rules
    max_model_len: int
    batch: Batch
    sessions: SessionBlocks
    dcp: int = 1
    num_gpu_blocks_override: int | None = None
    auto_fit: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def kv_dtype(self) -> str:
        """The KV dtype in force, as `kvplan.storage` names it."""
        return self.geometry.kv.stored

    @property
    def kv_format(self) -> KvFormat:
        """How each role of cache tensor is stored, states as this engine keeps them."""
        return self.geometry.kv_format

    @property
    def backend(self) -> str:
        """Attention backends in the order of the layers, joined by `/`."""
        return "/".join(self.geometry.backends)

    @property
    def max_num_seqs(self) -> int:
        """Most sessions at once."""
        return self.batch.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        """Most tokens of one step."""
        return self.batch.max_num_batched_tokens

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens scheduled and not settled, over all concurrent batches."""
        return self.batch.in_flight_tokens

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Tokens of one block in each group; a state without prefix caching takes the whole context."""
        return tuple(size or self.max_model_len for size in self.geometry.block_sizes)

    @property
    def block_size(self) -> int:
        """Tokens of one block: the smallest over the groups, as the engine reports it."""
        return min(self.block_sizes, default=self.geometry.block_size)

    @property
    def scheduler_block_size(self) -> int:
        """Tokens to which the scheduler aligns: every group's block, times the ranks that divide the sequence."""
        sizes = zip(self.geometry.groups, self.block_sizes, strict=True)
        return reduce(lcm, (size * (1 if g.pages.is_state else self.dcp) for g, size in sizes), 1)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on the fullest stage."""
        return self.geometry.block.largest

    @property
    def null_blocks(self) -> int:
        """Blocks that a pool holds back: one in the V1 engine."""
        return int(self.rules.engine_core == "v1")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how this layout came about."""
        return tuple(_notes(self))

    def groups(self) -> tuple[GroupSummary, ...]:
        """Every group with its padding, on the fullest stage."""
        planned, stage = self.geometry, self.geometry.block.fullest_stage
        found = zip(planned.groups, self.block_sizes, planned.block.padding, strict=True)
        return tuple(
            GroupSummary(len(g.at(stage).layers), g.pages.growth, size, g.page_bytes(stage), padding)
            for g, size, padding in found
        )

    def blocks_per_session(self, tokens: Ints) -> Ints:
        """Blocks of one session over all groups: what admission charges."""
        return self.sessions.of(tokens)

    def session_bytes(self, tokens: Ints) -> Ints:
        """Reserved bytes of one session on the fullest stage."""
        return self.sessions.of(tokens) * self.bytes_per_block

    def num_blocks(self, pool_bytes: Ints) -> Ints:
        """Blocks that fit into a pool of the same bytes on every stage."""
        if self.num_gpu_blocks_override is not None:
            return pool_bytes * 0 + self.num_gpu_blocks_override
        size = self.bytes_per_block
        return maximum(pool_bytes // size, 0) if size else pool_bytes * 0 + 1

    def blocks_of_stages(self, pools_bytes: Sequence[int]) -> int:
        """Blocks where stages have pools of different bytes: the stage with the fewest binds."""
        if self.num_gpu_blocks_override is not None:
            return self.num_gpu_blocks_override
        return min(pool // size for pool, size in zip(pools_bytes, self.geometry.block.of_stages, strict=True))

    def capacity(self, pool_bytes: int) -> VllmCapacity:
        """Blocks, tokens and concurrency as this release prints them."""
        return self._printed(int(self.num_blocks(pool_bytes)))

    def capacity_of_stages(self, pools_bytes: Sequence[int]) -> VllmCapacity:
        """The same where pipeline stages have pools of different bytes."""
        return self._printed(self.blocks_of_stages(pools_bytes))

    def _printed(self, num_blocks: int) -> VllmCapacity:
        length = self._longest(num_blocks) if self.auto_fit else self.max_model_len
        per_group = self.sessions.of_groups(length)
        concurrency = self._concurrency(num_blocks, per_group, length)
        return VllmCapacity(
            block_size=self.block_size,
            num_blocks=num_blocks,
            kv_tokens=self._tokens(num_blocks, concurrency, length),
            max_concurrency=concurrency,
            max_model_len=length,
            blocks_per_request=per_group,
        )

    def _concurrency(self, num_blocks: int, per_group: tuple[int, ...], length: int) -> float:
        """Requests of `length` tokens that fit; the float steps are the engine's own."""
        blocks = sum(per_group)
        if not blocks:
            return float(self.max_num_seqs)
        if self.rules.concurrency == "blocks":
            return num_blocks / blocks
        if self.rules.concurrency == "tokens":
            return num_blocks * self.block_size / length
        pages = [_group_page(g, packed=self.geometry.packed) for g in self.geometry.groups]
        return num_blocks / cdiv(sum(b * p for b, p in zip(per_group, pages, strict=True)), pages[0])

    def _tokens(self, num_blocks: int, concurrency: float, length: int) -> int:
        """The token line: capacity in older releases, concurrency times length since 0.20."""
        if self.rules.printed_tokens == "concurrency":
            return int(concurrency * length)
        groups = len(self.geometry.groups) if self.rules.printed_tokens == "blocks per group" else 1
        return num_blocks // max(1, groups) * self.block_size * self.dcp

    def pool_bytes(self, kind: str, slots: int) -> int | None:
        """vLLM prints one pool in blocks and tokens, none by its slots."""
        return None

    def needed_bytes(self, tokens: int) -> int:
        """The least pool with which the engine starts at a maximum length of `tokens`."""
        if self.rules.fit_check == "layers":
            return max(self._layers_bytes(tokens), self.bytes_per_block)
        blocks = int(self.sessions.of(tokens)) + self.rules.null_block_in_fit
        return blocks * self.geometry.block.checked

    def _layers_bytes(self, tokens: int) -> int:
        """One session's pages summed over layers, as releases before 0.14 checked: without the padding of groups."""
        held = list(zip(self.sessions.of_groups(tokens), self.geometry.groups, strict=True))
        return max((sum(n * g.page_bytes(s) for n, g in held) for s in self.geometry.block.stages), default=0)

    def _longest(self, num_blocks: int) -> int:
        """The longest context of which one session fits, as the engine's own search finds it; 0 where none does."""
        usable = num_blocks - self.rules.null_block_in_fit
        return last_true(lambda n: int(self.sessions.of(n)) <= usable, self.max_model_len)

    def refusal(self, pool_bytes: int) -> str | None:
        """Why the engine does not start with this pool at `max_model_len`, in its own words; None where it starts."""
        held_back = self.rules.null_block_in_fit * self.bytes_per_block
        pool = self._checked_bytes(pool_bytes)
        if pool <= held_back:
            return NO_MEMORY
        needed = self.needed_bytes(self.max_model_len)
        if self.auto_fit or needed <= pool:
            return None
        if self.rules.engine_core == "v0":
            return exceeds_tokens(self.max_model_len, int(self.num_blocks(pool_bytes)) * self.block_size)
        estimate = last_true(lambda n: self.needed_bytes(n) <= pool, self.max_model_len)
        return does_not_fit(self.max_model_len, needed - held_back, pool - held_back, estimate)

    def _checked_bytes(self, pool_bytes: int) -> int:
        """The pool that start-up checks: an override of the blocks counts as their bytes."""
        override = self.num_gpu_blocks_override
        return pool_bytes if override is None else override * self.bytes_per_block

    def max_batch(self, pool_bytes: Ints, tokens: Ints) -> Ints:
        """Sessions of `tokens` tokens at once: blocks but the one held back, and what the scheduler admits."""
        usable = maximum(self.num_blocks(pool_bytes) - self.null_blocks, 0)
        held = self.sessions.of(tokens)
        admitted = held * 0 + usable * 0 + self.max_num_seqs
        return minimum(usable // held, admitted) if self.geometry.groups else admitted

    def max_context(self, pool_bytes: int, sessions: int = 1) -> int:
        """The longest context up to `max_model_len` at which the engine starts and `sessions` run; 0 if none."""
        if sessions > self.max_num_seqs:
            return 0
        pool, usable = self._checked_bytes(pool_bytes), int(self.num_blocks(pool_bytes)) - self.null_blocks

        def runs(tokens: int) -> bool:
            return int(self.sessions.of(tokens)) * sessions <= usable and self.needed_bytes(tokens) <= pool

        return last_true(runs, self.max_model_len)


def _group_page(group: Group, *, packed: bool) -> int:
    """One block of a group as older formulas see it: one layer's page, or all pages where each is kept apart."""
    return group.page_bytes(group.layers[0].stage) if packed or group.is_mixed else group.pages.page_bytes


def _notes(layout: VllmLayout) -> Iterator[str]:
    planned = layout.geometry
    yield from layout.remarks
    if any(g.pages.is_state for g in planned.groups):
        yield f"a block takes {layout.block_size} tokens, so that its page holds a recurrent state"
    if any(g.pages.growth in {"sliding", "chunked"} for g in planned.groups):
        yield f"windows are charged with the {layout.max_in_flight_tokens} tokens in flight"
    if any(planned.block.padding):
        share = sum(planned.block.padding) / (len(planned.groups) * planned.block.largest)
        yield f"{share:.1%} of a block is padding, on average over {len(planned.groups)} groups"
