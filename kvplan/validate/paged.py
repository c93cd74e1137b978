"""One layer's cache in real memory: blocks, a block table, and sessions that grow into it.

A contiguous cache is the same thing with one block per session. Blocks are handed out in a shuffled order, so that a
kernel which ignores the table cannot pass, and unwritten slots are NaN, so that a kernel which reads them cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kvplan.arith import cdiv
from kvplan.errors import BadInput
from kvplan.validate.packing import POISON, Record


@dataclass(slots=True)
class PagedCache:
    """One layer's cache of `batch` sessions.

    blocks       uint8 [num_blocks, block_size, record_bytes]
    block_table  int32 [batch, blocks per session]; -1 where no block has been handed out
    lengths      int32 [batch] tokens written
    """

    record: Record
    blocks: Tensor
    block_table: Tensor
    lengths: Tensor
    free_blocks: list[int]

    @classmethod
    def allocate(
        cls,
        record: Record,
        *,
        batch: int,
        capacity_tokens: int,
        block_size: int | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> PagedCache:
        """Room for `batch` sessions of `capacity_tokens`: in blocks of `block_size`, or None for contiguous."""
        block_tokens = block_size or capacity_tokens
        per_session = cdiv(capacity_tokens, block_tokens)
        shape = (batch * per_session, block_tokens, record.planned_bytes)
        order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(seed))
        if block_size is None:
            order = torch.arange(shape[0]).flip(0)
        return cls(
            record=record,
            blocks=torch.full(shape, POISON, dtype=torch.uint8, device=device),
            block_table=torch.full((batch, per_session), -1, dtype=torch.int32, device=device),
            lengths=torch.zeros(batch, dtype=torch.int32, device=device),
            free_blocks=order.tolist(),
        )

    @property
    def block_size(self) -> int:
        """Tokens of one block."""
        return self.blocks.shape[1]

    @property
    def storage_bytes(self) -> int:
        """Bytes of the blocks, used or not: what the device had to give."""
        return self.blocks.untyped_storage().nbytes()

    @property
    def used_bytes(self) -> int:
        """Bytes of the blocks that sessions hold."""
        return int((self.block_table >= 0).sum()) * self.blocks[0].numel()

    @property
    def in_order(self) -> bool:
        """Whether each session is one block and the blocks lie in the order of the sessions."""
        table = self.block_table
        return table.shape[1] == 1 and bool((table[:, 0].cpu() == torch.arange(len(table))).all())

    def append(self, values: Tensor, sessions: Tensor | None = None) -> None:
        """Write the next tokens: values [sessions, tokens, width], of all sessions or of the given ones."""
        rows = torch.arange(len(self.lengths)) if sessions is None else sessions
        tokens = values.shape[1]
        for row in rows.tolist():
            self._reserve(row, int(self.lengths[row]) + tokens)
        rows = rows.to(self.lengths.device)
        positions = self.lengths[rows, None] + torch.arange(tokens, device=self.lengths.device)
        blocks = self.block_table[rows[:, None], positions // self.block_size]
        self.blocks[blocks, positions % self.block_size] = self.record.pack(values)
        self.lengths[rows] += tokens

    def _reserve(self, row: int, tokens: int) -> None:
        """Hand out blocks until session `row` has room for `tokens`."""
        held = int((self.block_table[row] >= 0).sum())
        needed = cdiv(tokens, self.block_size)
        if needed > self.block_table.shape[1]:
            room = self.block_table.shape[1] * self.block_size
            raise BadInput(f"session {row}: {tokens} tokens do not fit into a cache of {room} tokens a session")
        for column in range(held, needed):
            self.block_table[row, column] = self.free_blocks.pop()

    def gather(self) -> Tensor:
        """A copy of the records in token order, uint8 [batch, longest length rounded up to blocks, record_bytes]."""
        columns = cdiv(int(self.lengths.max()), self.block_size)
        table = self.block_table[:, :columns].clamp_min(0)
        return self.blocks[table].flatten(1, 2)

    def unpack(self) -> Tensor:
        """Values in token order [batch, tokens, width]; unwritten slots are NaN."""
        tokens = int(self.lengths.max())
        values = self.record.unpack(self.gather()[:, :tokens])
        written = torch.arange(tokens, device=self.lengths.device) < self.lengths[:, None]
        return values.where(written[..., None], torch.nan)
