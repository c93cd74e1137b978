"""Memory from which timed caches are cut: filled once, larger than the last-level cache, so that no step finds its
data there."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from kvplan.arith import cdiv
from kvplan.decode_kernel import DecodeShape
from kvplan.validate.machine import Machine
from kvplan.validate.packing import Record
from kvplan.validate.paged import PagedCache

_CHUNK_TOKENS = 16384
_MOST_CACHES = 1024


@dataclass(frozen=True, slots=True)
class CachePool:
    """Records of random tokens: `slots` uint8 [tokens, record bytes]."""

    record: Record
    slots: Tensor

    @classmethod
    def filled(cls, record: Record, tokens: int, device: str) -> CachePool:
        """`tokens` records; the same chunk of them again and again."""
        generator = torch.Generator(device=device).manual_seed(0)
        chunk = torch.randn(min(tokens, _CHUNK_TOKENS), record.width, generator=generator, device=device)
        packed = record.pack(chunk)
        return cls(record, packed.repeat(cdiv(tokens, len(packed)), 1)[:tokens])

    def caches(self, shape: DecodeShape, block_size: int | None, count: int) -> list[PagedCache]:
        """`count` full caches over different records: stretches of the pool, or random blocks of all of it."""
        if block_size is None:
            return [self._contiguous(shape, i) for i in range(count)]
        return [self._paged(shape, block_size, seed) for seed in range(count)]

    def distinct(self, shape: DecodeShape, machine: Machine) -> int:
        """Caches to rotate over: enough to leave nothing of one in the last-level cache when its turn comes again."""
        tokens = shape.batch * shape.context_tokens
        enough = ceil(2 * machine.cache_bytes / (tokens * self.record.planned_bytes)) + 1
        return max(1, min(enough, len(self.slots) // tokens, _MOST_CACHES))

    def _contiguous(self, shape: DecodeShape, number: int) -> PagedCache:
        tokens = shape.batch * shape.context_tokens
        blocks = self.slots[number * tokens : (number + 1) * tokens].view(shape.batch, shape.context_tokens, -1)
        table = torch.arange(shape.batch, dtype=torch.int32, device=blocks.device)[:, None]
        return PagedCache(self.record, blocks, table, self._lengths(shape))

    def _paged(self, shape: DecodeShape, block_size: int, seed: int) -> PagedCache:
        per_session = cdiv(shape.context_tokens, block_size)
        num_blocks = len(self.slots) // block_size
        blocks = self.slots[: num_blocks * block_size].view(num_blocks, block_size, -1)
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
        table = order[: shape.batch * per_session].view(shape.batch, per_session).to(blocks.device, torch.int32)
        return PagedCache(self.record, blocks, table, self._lengths(shape))

    def _lengths(self, shape: DecodeShape) -> Tensor:
        return torch.full((shape.batch,), shape.context_tokens, dtype=torch.int32, device=self.slots.device)


def pool_tokens(shapes: list[DecodeShape], record: Record, machine: Machine) -> int:
    """Tokens of a pool for these shapes: the largest of them, and twice the last-level cache, within a quarter of what
    is free. Shapes beyond that do not fit."""
    largest = max((s.batch * s.context_tokens for s in shapes), default=0)
    beyond_cache = cdiv(2 * machine.cache_bytes, record.planned_bytes)
    affordable = machine.free_bytes // 4 // record.planned_bytes
    return min(max(largest, beyond_cache), affordable)
