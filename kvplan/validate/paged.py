"""One layer's cache in real memory: blocks, a block table, and sessions that grow into it.

A contiguous cache is the same thing with one block per session, in order. Blocks of a paged one are handed out
shuffled, so that a kernel which ignores the table cannot pass, and unwritten slots are NaN, so that a kernel which
reads them cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvplan.arith import cdiv
from kvplan.errors import BadInput
from kvplan.validate.packing import POISON, Record


@dataclass(frozen=True, slots=True)
class Extent:
    """How many slots a cache has: `batch` sessions of up to `capacity_tokens`, in blocks of `block_size`.

    `block_size` None is contiguous: one block per session.
    """

    batch: int
    capacity_tokens: int
    block_size: int | None = None

    @property
    def block_tokens(self) -> int:
        """Slots of one block."""
        return self.block_size or self.capacity_tokens

    @property
    def blocks_per_session(self) -> int:
        """Blocks that a full session holds."""
        return cdiv(self.capacity_tokens, self.block_tokens)

    @property
    def num_blocks(self) -> int:
        """Blocks of all sessions."""
        return self.batch * self.blocks_per_session


def poisoned(record: Record, extent: Extent, layers: int, device: str) -> Tensor:
    """The memory of `layers` layers in one piece, all NaN: uint8 [layers, num_blocks, block_tokens, record bytes]."""
    shape = (layers, extent.num_blocks, extent.block_tokens, record.planned_bytes)
    return torch.full(shape, POISON, dtype=torch.uint8, device=device)


@dataclass(slots=True)
class PagedCache:
    """One layer's cache.

    blocks       uint8 [num_blocks, block_tokens, record bytes]
    block_table  int32 [batch, blocks per session]; -1 where no block has been handed out
    lengths      int32 [batch] tokens written
    """

    record: Record
    blocks: Tensor
    block_table: Tensor
    lengths: Tensor
    free_blocks: list[int] = field(default_factory=list)

    @classmethod
    def over(cls, blocks: Tensor, record: Record, extent: Extent, *, seed: int = 0) -> PagedCache:
        """An empty cache over memory that is already there (one layer of `poisoned`)."""
        order = torch.randperm(extent.num_blocks, generator=torch.Generator().manual_seed(seed))
        table = torch.full((extent.batch, extent.blocks_per_session), -1, dtype=torch.int32)
        if extent.block_size is None:
            order, table = order[:0], torch.arange(extent.batch, dtype=torch.int32)[:, None]
        lengths = torch.zeros(extent.batch, dtype=torch.int32, device=blocks.device)
        return cls(record, blocks, table.to(blocks.device), lengths, order.tolist())

    @classmethod
    def allocate(cls, record: Record, extent: Extent, *, device: str = "cpu", seed: int = 0) -> PagedCache:
        """An empty cache with memory of its own."""
        return cls.over(poisoned(record, extent, 1, device)[0], record, extent, seed=seed)

    @property
    def block_tokens(self) -> int:
        """Slots of one block."""
        return self.blocks.shape[1]

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks that sessions hold."""
        return int((self.block_table >= 0).sum()) * self.blocks[0].numel()

    @property
    def in_order(self) -> bool:
        """Whether each session is one block and the blocks lie in the order of the sessions."""
        table = self.block_table
        return table.shape[1] == 1 and bool((table[:, 0].cpu() == torch.arange(len(table))).all())

    def append(self, values: Tensor) -> None:
        """Write the next tokens of every session: values [batch, tokens, width]."""
        self.append_packed(self.record.pack(values))

    def append_packed(self, packed: Tensor, counts: Tensor | None = None) -> None:
        """Write records [batch, tokens, record bytes]: all of them, or of each session the first `counts` [batch]."""
        if counts is None:
            counts = torch.full_like(self.lengths, packed.shape[1])
        for row, tokens in enumerate((self.lengths + counts).tolist()):
            self._reserve(row, tokens)
        rows, steps = (torch.arange(packed.shape[1], device=counts.device) < counts[:, None]).nonzero(as_tuple=True)
        positions = self.lengths[rows] + steps
        blocks = self.block_table[rows, positions // self.block_tokens]
        self.blocks[blocks, positions % self.block_tokens] = packed[rows, steps]
        self.lengths += counts

    def _reserve(self, row: int, tokens: int) -> None:
        """Hand out blocks until session `row` has room for `tokens`."""
        held = int((self.block_table[row] >= 0).sum())
        needed = cdiv(tokens, self.block_tokens)
        if needed > self.block_table.shape[1]:
            room = self.block_table.shape[1] * self.block_tokens
            raise BadInput(f"session {row}: {tokens} tokens do not fit into a cache of {room} tokens a session")
        for column in range(held, needed):
            self.block_table[row, column] = self.free_blocks.pop()

    @property
    def gathered_bytes(self) -> int:
        """Bytes of what the reader copies."""
        return len(self.lengths) * cdiv(int(self.lengths.max()), self.block_tokens) * self.blocks[0].numel()

    def reader(self) -> Callable[[], Tensor]:
        """What fetches the records in each step, uint8 [batch, tokens, record bytes]: a view where they lie in order,
        else a copy by the block table. The lengths are those of now."""
        tokens = int(self.lengths.max())
        if self.in_order:
            return lambda: self.blocks[:, :tokens]
        table = self.block_table[:, : cdiv(tokens, self.block_tokens)].clamp_min(0)
        return lambda: self.blocks[table].flatten(1, 2)[:, :tokens]

    def unpack(self) -> Tensor:
        """Values in token order [batch, tokens, width]; unwritten slots are NaN."""
        values = self.record.unpack(self.reader()())
        written = torch.arange(values.shape[1], device=values.device) < self.lengths[:, None]
        return values.where(written[..., None], torch.nan)
