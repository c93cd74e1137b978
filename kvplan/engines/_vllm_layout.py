"""The answer: blocks, tokens and sessions for any pool, in closed form, as one release prints and admits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import lcm
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, maximum, minimum
from kvplan.engines.base import Capacity
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.engines._vllm_geometry import Geometry
    from kvplan.engines._vllm_groups import Group
    from kvplan.engines._vllm_pages import Blocks
    from kvplan.engines._vllm_settings import Batch
    from kvplan.engines._vllm_versions import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmCapacity(Capacity):
    """What this release prints, and what it is made of. `max_model_len`: after auto-fit, where -1 was asked for."""

    max_model_len: int
    blocks_per_request: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group for people: its layers on the first stage that has any, what they are, and its padding.

    `padding_bytes`: what one block of the pool leaves unused when this group holds it.
    """

    layers: int
    growth: str
    block_size: int
    page_bytes: int
    padding_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLayout:
    """How one release cuts the cache of one deployment. Bytes and tokens are per rank."""

    geometry: Geometry
    rules: Rules
    max_model_len: int
    batch: Batch
    laws: tuple[Blocks, ...]
    dcp: int = 1
    num_gpu_blocks_override: int | None = None
    auto_fit: bool = False
    assumption: str | None = None

    @property
    def kv_dtype(self) -> str:
        """The KV dtype in force, as `kvplan.storage` names it."""
        return self.geometry.kv.stored

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
        """Tokens of one block in each group."""
        return tuple(g.pages.block_size or self.max_model_len for g in self.geometry.groups)

    @property
    def block_size(self) -> int:
        """Tokens of one block: the smallest over the groups, as the engine reports it."""
        return min(self.block_sizes, default=self.geometry.block_size)

    @property
    def scheduler_block_size(self) -> int:
        """Tokens to which the scheduler aligns: every group's block, times the ranks that divide the sequence."""
        sizes = zip(self.geometry.groups, self.block_sizes, strict=True)
        return reduce(lcm, (s * (1 if g.pages.is_state else self.dcp) for g, s in sizes), 1)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on the fullest stage."""
        return max(self.geometry.stage_bytes, default=0)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how this layout came about."""
        return tuple(_notes(self))

    @property
    def null_blocks(self) -> int:
        """Blocks that a pool holds back: one in the V1 engine."""
        return int(self.rules.engine_core == "v1")

    def groups(self) -> tuple[GroupSummary, ...]:
        """Every group with its padding, on the fullest stage."""
        stage = max(range(len(self.geometry.stage_bytes)), key=self.geometry.stage_bytes.__getitem__)
        return tuple(self._summary(g, stage) for g in self.geometry.groups)

    def _summary(self, group: Group, stage: int) -> GroupSummary:
        stages = sorted({layer.stage for g in self.geometry.groups for layer in g.layers})
        here, size = group.at(stages[stage]), group.page_bytes(stages[stage])
        return GroupSummary(
            layers=len(here.layers),
            growth=group.pages.growth,
            block_size=group.pages.block_size or self.max_model_len,
            page_bytes=size,
            padding_bytes=self.geometry.stage_bytes[stage] - sum(layer.pages.own_bytes for layer in here.layers),
        )

    def group_blocks(self, tokens: int) -> tuple[int, ...]:
        """Blocks of one session of `tokens` tokens in each group."""
        return tuple(int(law.of(tokens)) for law in self.laws)

    def blocks_per_session(self, tokens: Ints) -> Ints:
        """Blocks of one session over all groups: what admission charges."""
        total: Ints = 0
        for law, count in Counter(self.laws).items():
            total = total + law.of(tokens) * count
        return total

    def session_bytes(self, tokens: Ints) -> Ints:
        """Reserved bytes of one session on the fullest stage."""
        return self.blocks_per_session(tokens) * self.bytes_per_block

    def num_blocks(self, pool_bytes: Ints) -> Ints:
        """Blocks that fit into a pool of the same bytes on every stage."""
        if self.num_gpu_blocks_override is not None:
            return pool_bytes * 0 + self.num_gpu_blocks_override
        if not self.geometry.stage_bytes:
            return pool_bytes * 0 + 1
        return maximum(pool_bytes // self.bytes_per_block, pool_bytes * 0)

    def blocks_of_stages(self, pools_bytes: Sequence[int]) -> int:
        """Blocks where stages have pools of different bytes: the stage with the fewest binds."""
        if self.num_gpu_blocks_override is not None:
            return self.num_gpu_blocks_override
        return min(pool // size for pool, size in zip(pools_bytes, self.geometry.stage_bytes, strict=True))

    def capacity(self, pool_bytes: int) -> VllmCapacity:
        """Blocks, tokens and concurrency as this release prints them."""
        return self._printed(int(self.num_blocks(pool_bytes)))

    def capacity_of_stages(self, pools_bytes: Sequence[int]) -> VllmCapacity:
        """The same where pipeline stages have pools of different bytes."""
        return self._printed(self.blocks_of_stages(pools_bytes))

    def _printed(self, num_blocks: int) -> VllmCapacity:
        length = self._longest(num_blocks) if self.auto_fit else self.max_model_len
        per_group = self.group_blocks(length)
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
        if not per_group or not any(per_group):
            return float(self.max_num_seqs)
        if self.rules.concurrency == "tokens":
            return num_blocks * self.block_size / length
        if self.rules.concurrency == "bytes":
            pages = [_group_page(g) for g in self.geometry.groups]
            return num_blocks / cdiv(sum(b * p for b, p in zip(per_group, pages, strict=True)), pages[0])
        return num_blocks / sum(per_group)

    def _tokens(self, num_blocks: int, concurrency: float, length: int) -> int:
        """The token line: capacity in older releases, concurrency times length since 0.20."""
        if self.rules.printed_tokens == "concurrency":
            return int(concurrency * length)
        groups = len(self.laws) if self.rules.printed_tokens == "blocks per group" else 1
        return num_blocks // max(1, groups) * self.block_size * self.dcp

    def needed_bytes(self, tokens: int) -> int:
        """The least pool with which the engine starts at a maximum length of `tokens`."""
        if self.rules.fit_check == "layers":
            return max(self._layers_bytes(tokens), self.bytes_per_block)
        return (int(self.blocks_per_session(tokens)) + self.rules.null_block_in_fit) * self.bytes_per_block

    def _layers_bytes(self, tokens: int) -> int:
        """One session's pages summed over layers, as releases before 0.14 checked: without the padding of groups."""
        stages = {layer.stage for g in self.geometry.groups for layer in g.layers}
        blocks = self.group_blocks(tokens)
        return max(
            (sum(n * g.page_bytes(s) for n, g in zip(blocks, self.geometry.groups, strict=True)) for s in stages), default=0
        )

    def _longest(self, num_blocks: int) -> int:
        """The longest context of which one session fits, as the engine's own search finds it; 0 where none does."""
        usable = num_blocks - self.rules.null_block_in_fit
        return _last_true(lambda n: int(self.blocks_per_session(n)) <= usable, self.max_model_len)

    def refusal(self, pool_bytes: int) -> str | None:
        """Why the engine does not start with this pool at `max_model_len`, in its own words; None where it starts."""
        override = self.num_gpu_blocks_override
        pool = pool_bytes if override is None else override * self.bytes_per_block
        available = pool - self.rules.null_block_in_fit * self.bytes_per_block
        if available <= 0:
            return "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine"
        if self.auto_fit:
            return None
        needed = self.needed_bytes(self.max_model_len) - self.rules.null_block_in_fit * self.bytes_per_block
        return _does_not_fit(self.max_model_len, needed, available, self._estimate(pool)) if needed > available else None

    def _estimate(self, pool_bytes: int) -> int:
        return _last_true(lambda n: self.needed_bytes(n) <= pool_bytes, self.max_model_len)

    def max_batch(self, pool_bytes: Ints, tokens: Ints) -> Ints:
        """Sessions of `tokens` tokens at once: blocks but the one held back, and what the scheduler admits."""
        usable = maximum(self.num_blocks(pool_bytes) - self.null_blocks, 0)
        per_session = self.blocks_per_session(tokens)
        fit = usable // maximum(per_session, 1)
        return minimum(fit + (per_session == 0) * self.max_num_seqs, self.max_num_seqs)

    def max_context(self, pool_bytes: int, sessions: int = 1) -> int:
        """The longest context at which `sessions` sessions fit; 0 where none does, or where too many are asked for."""
        if sessions > self.max_num_seqs:
            return 0
        if sessions == 1:
            return _last_true(lambda n: self.needed_bytes(n) <= self._usable_bytes(pool_bytes), self.max_model_len)
        return _last_true(lambda n: int(self.max_batch(pool_bytes, n)) >= sessions, self.max_model_len)

    def _usable_bytes(self, pool_bytes: int) -> int:
        if self.num_gpu_blocks_override is not None:
            return self.num_gpu_blocks_override * self.bytes_per_block
        return pool_bytes


def _group_page(group: Group) -> int:
    """One block of a group as older concurrency formulas see it: one layer's page, or all pages where layers differ."""
    return group.page_bytes(group.layers[0].stage) if group.is_mixed else group.pages.page_bytes


def _last_true(holds: Callable[[int], bool], most: int) -> int:
    """The largest n from 1 to `most` for which a falling predicate holds; 0 where it never does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _does_not_fit(length: int, needed_bytes: int, available_bytes: int, estimate: int) -> str:
    hint = f"Based on the available memory, the estimated maximum model length is {estimate}. " if estimate > 0 else ""
    return (
        f"To serve at least one request with the model's max seq len ({length}), ({_gib(needed_bytes)} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({_gib(available_bytes)} GiB). {hint}"
        "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing "
        "`max_model_len` when initializing the engine."
    )


def _gib(size: int) -> float:
    return round(size / GIB, 2)


def _notes(layout: VllmLayout) -> Iterator[str]:
    if layout.assumption:
        yield layout.assumption
    if any(g.pages.is_state for g in layout.geometry.groups):
        yield f"a block takes {layout.block_size} tokens, so that its page holds a recurrent state"
    if any(g.pages.growth in ("sliding", "chunked") for g in layout.geometry.groups):
        yield f"windows are charged with the {layout.max_in_flight_tokens} tokens in flight"
    padding = sum(g.padding_bytes for g in layout.groups())
    if padding:
        yield f"{padding} bytes of padding in {len(layout.laws)} blocks, one of each group"
    if layout.rules.engine_core == "v0":
        yield "V0 engine: recurrent states lie outside the pool"
