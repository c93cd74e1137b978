"""A pool of token slots in pages, with a second pool for sliding layers and a third for states: SGLang, TensorRT-LLM.

Growing layers cost `cell_bytes` a token; sliding layers have slots of their own, a fixed share of the growing ones;
states take whole slots per session.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, minimum, round_up
from kvplan.engines.base import Capacity
from kvplan.storage import KvFormat

if TYPE_CHECKING:
    from kvplan.arith import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPool:
    """`kvplan.engines.base.Layout` over token slots.

    `cell_bytes`: bytes of one token in all growing layers of the fullest rank. `window_cell_bytes`: of one slot in all
    sliding layers; `window_ratio` of such slots for each growing one, of which a session holds `window_tokens`.
    `state_bytes`: of one session's states; `state_slots` of them held per running session; `state_ratio`: bytes of
    states for one byte of the rest. `spare_blocks`, `spare_states`: allocated beside those that are handed out.
    """

    kv_dtype: str
    kv_format: KvFormat
    block_size: int
    cell_bytes: Fraction
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    window_cell_bytes: int = 0
    window_ratio: Fraction = Fraction(0)
    window_tokens: int = 0
    state_bytes: int = 0
    state_slots: int = 1
    state_ratio: Fraction = Fraction(0)
    dcp: int = 1
    spare_blocks: int = 0
    spare_states: int = 0
    notes: tuple[str, ...] = ()

    @property
    def bytes_per_token(self) -> Fraction:
        """Bytes of one token slot, its share of sliding slots included."""
        return self.cell_bytes + self.window_ratio * self.window_cell_bytes

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one page over growing and sliding pools, rounded up."""
        return -(-self.bytes_per_token.numerator * self.block_size // self.bytes_per_token.denominator)

    def token_bytes(self, pool_bytes: Ints) -> Ints:
        """What of the pool holds tokens: all but the slots of states."""
        if not self.state_bytes:
            return pool_bytes
        return pool_bytes - self.state_count(pool_bytes) * self.state_bytes

    def state_count(self, pool_bytes: Ints) -> Ints:
        """State slots; one more is allocated than is handed out."""
        share = self.state_ratio / (1 + self.state_ratio)
        return pool_bytes * share.numerator // (share.denominator * self.state_bytes)

    def num_blocks(self, pool_bytes: Ints) -> Ints:
        """Whole pages of growing slots."""
        cost = self.bytes_per_token
        if not cost:
            return pool_bytes * 0
        return self.token_bytes(pool_bytes) * cost.denominator // cost.numerator // self.block_size

    def kv_tokens(self, pool_bytes: Ints) -> Ints:
        """Token slots of all ranks that divide the sequence."""
        return self.num_blocks(pool_bytes) * self.block_size * self.dcp

    def window_slots(self, pool_bytes: Ints) -> Ints:
        """Slots of the sliding pool, in whole pages."""
        slots = self.num_blocks(pool_bytes) * self.block_size
        share = slots * self.window_ratio.numerator // self.window_ratio.denominator
        return share // self.block_size * self.block_size

    def blocks_per_session(self, tokens: Ints) -> Ints:
        """Pages of growing slots."""
        return cdiv(cdiv(tokens, self.dcp), self.block_size)

    def session_bytes(self, tokens: Ints) -> Ints:
        """Pages of growing slots, filled windows, states."""
        cost, slots = self.cell_bytes, self.blocks_per_session(tokens) * self.block_size
        windows = self.window_cell_bytes * round_up(minimum(tokens, self.window_tokens), self.block_size)
        return cdiv(slots * cost.numerator, cost.denominator) + windows + self.state_bytes * self.state_slots

    def max_batch(self, pool_bytes: Ints, tokens: Ints) -> Ints:
        """What each pool holds, and what the scheduler admits."""
        batch: Ints = minimum(pool_bytes * 0 + tokens * 0 + self.max_num_seqs, self.max_num_seqs)
        if self.bytes_per_token:
            batch = minimum(batch, self.num_blocks(pool_bytes) // self.blocks_per_session(tokens))
        if self.window_cell_bytes and self.cell_bytes:
            held = round_up(minimum(tokens, self.window_tokens), self.block_size)
            batch = minimum(batch, self.window_slots(pool_bytes) // held)
        if self.state_bytes:
            batch = minimum(batch, self._state_batch(pool_bytes))
        return batch

    def _state_batch(self, pool_bytes: Ints) -> Ints:
        from kvplan.arith import maximum

        return maximum(self.state_count(pool_bytes) - 1, pool_bytes * 0) // self.state_slots

    def pool_bytes(self, kind: str, slots: int) -> int | None:
        """Bytes of the growing pool (kv, full), the sliding pool (swa) or the states (state), spare slots included."""
        padded = slots + self.spare_blocks * self.block_size
        if kind in {"kv", "full"} and self.cell_bytes:
            return -(-padded * self.cell_bytes.numerator // self.cell_bytes.denominator)
        if kind in {"swa", "window"} and self.window_cell_bytes:
            return padded * self.window_cell_bytes
        if kind == "state" and self.state_bytes:
            return (slots + self.spare_states) * self.state_bytes
        return None

    def needed_bytes(self, tokens: int) -> int:
        """The least pool whose pages hold one session of `tokens` tokens."""
        slots = Fraction(int(self.blocks_per_session(tokens)) * self.block_size) * self.bytes_per_token
        states = self.state_bytes * (self.state_slots + 1)
        return -(-slots.numerator // slots.denominator) + states

    def capacity(self, pool_bytes: int) -> Capacity:
        """Pages and tokens as printed; concurrency is tokens over the longest session."""
        tokens = int(self.kv_tokens(pool_bytes))
        return Capacity(
            block_size=self.block_size,
            num_blocks=int(self.num_blocks(pool_bytes)),
            kv_tokens=tokens,
            max_concurrency=tokens / self.max_model_len,
        )

    def max_context(self, pool_bytes: int, sessions: int = 1) -> int:
        """All pages shared out evenly."""
        if not self.max_batch(pool_bytes, 1) >= sessions:
            return 0
        if not self.cell_bytes:
            return self.max_model_len
        pages = int(self.num_blocks(pool_bytes)) // sessions
        return min(self.max_model_len, pages * self.block_size * self.dcp)
