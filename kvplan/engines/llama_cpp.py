"""llama.cpp: cells padded to 256, sliding layers with cells of their own, states per sequence.

Rules: read in its source (llama-kv-cache{,-iswa,-dsa,-dsv4}.cpp, llama-memory-recurrent.cpp,
b11434 to b11739), checked against llama.cpp's own allocation log. A context (`-c`, n_ctx) is allocated whole when it
starts; devices hold the cache of their layers, so several GPUs are pipeline stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from kvplan.arith import cdiv, maximum, minimum, round_up
from kvplan.budget import Budget
from kvplan.cache import CacheTensor, PerToken
from kvplan.engines._llama_cpp_types import K_ROLES, cache_types
from kvplan.engines.base import Capacity, DeploymentKey, switch, whole
from kvplan.errors import Unsupported
from kvplan.parallel import stage_layers
from kvplan.storage import FP32, KvFormat, kv_format

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.engines.base import Deployment, Layout

CELL_PAD = 256
_STATE_ROLES = {"conv_state", "recurrent_state", "compressor_state"}


@dataclass(frozen=True, slots=True)
class Rows:
    """One cache tensor of `layers` layers on one device: bytes of one cell's row, and how many cells it has.

    `window`: a sliding layer's, in tokens; `ratio`: of a compressed record; both None and 1 for full attention.
    """

    part: str
    layers: int
    row_bytes: int
    window: int | None = None
    ratio: int = 1


class LlamaCppLayout:
    """The allocation of one context on the device that holds most. See `kvplan.engines.base.Layout`."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        d, args = deployment, deployment.engine_args
        self.n_seq = d.max_num_seqs or whole(args, "n_parallel", None) or whole(args, "n_seq_max", 1) or 1
        self.unified = switch(args, "kv_unified") and not self._per_sequence
        self.ubatch = whole(args, "n_ubatch", None) or whole(args, "ubatch_size", 512) or 512
        self.swa_full = switch(args, "swa_full")
        whole(args, "n_ctx", None)  # a bad one is said at once
        self.type_k, self.type_v = cache_types(d)
        self.notes: tuple[str, ...] = (
            "The whole context is allocated at start; one GPU more is one more share of the layers.",
        )

    @property
    def _per_sequence(self) -> bool:
        """DeepSeek-V4's caches are per sequence whatever kv_unified says."""
        return any(a.kind == "compressed" for _, a in self.deployment.spec.mixers())

    @property
    def kv_dtype(self) -> str:
        """The K type; V where it differs is a note."""
        return self.type_k.name

    @property
    def kv_format(self) -> KvFormat:
        """K's storage, V's where a tensor is one."""
        return replace(self.type_k, roles={**self.type_k.roles, "v": self.type_v.default})

    @property
    def block_size(self) -> int:
        """Cells are padded to multiples of this many tokens."""
        return CELL_PAD

    @property
    def max_num_seqs(self) -> int:
        """-np."""
        return self.n_seq

    @property
    def max_num_batched_tokens(self) -> int:
        """-ub, the physical batch."""
        return self.ubatch

    @cached_property
    def rows(self) -> tuple[Rows, ...]:
        """The tensors of the device that holds most."""
        stages = stage_layers(self.deployment.spec.num_hidden_layers, self.deployment.parallel.pp)
        return max(
            (tuple(self._stage_rows(s)) for s in stages), key=lambda rows: sum(r.layers * r.row_bytes for r in rows)
        )

    def _stage_rows(self, stage: range) -> Iterator[Rows]:
        for group in self.deployment.spec.layer_groups:
            layers = sum(i in stage for i in group.indices)
            for attention in group.attention if layers else ():
                window = getattr(attention, "sliding_window", None) or getattr(attention, "attention_chunk_size", None)
                for tensor in attention.tensors():
                    if tensor.role not in _STATE_ROLES:  # states are counted apart
                        yield self._rows_of(tensor, layers, window)

    def _rows_of(self, tensor: CacheTensor, layers: int, window: int | None) -> Rows:
        fmt = self.type_k if tensor.role in K_ROLES else self.type_v
        part = "K" if tensor.role in K_ROLES else "V"
        grows = isinstance(tensor.law, PerToken)
        ratio = tensor.law.ratio if isinstance(tensor.law, PerToken) else 1
        return Rows(part, layers, tensor.heads * fmt.default.vector_bytes(tensor.dim), None if grows else window, ratio)

    @cached_property
    def state_bytes(self) -> int:
        """States of one sequence on the fullest device: all in fp32 (recurrent R and S, DeepSeek-V4 compressors)."""
        stages = stage_layers(self.deployment.spec.num_hidden_layers, self.deployment.parallel.pp)
        return max(self._stage_states(stage) for stage in stages)

    def _stage_states(self, stage: range) -> int:
        total = 0
        for group in self.deployment.spec.layer_groups:
            layers = sum(i in stage for i in group.indices)
            for tensor in group.tensors():
                if tensor.role in _STATE_ROLES:
                    # A compressor keeps both groups that overlap, or one group that does not.
                    total += (
                        layers
                        * tensor.heads
                        * FP32.vector_bytes(tensor.dim)
                        * int(tensor.slots(1))
                        * _state_rows(group)
                    )
        return total

    def context_cells(self, n_ctx: Ints, n_seq: int) -> Ints:
        """Cells of one stream: n_ctx padded, or its share of a sequence padded where streams are separate."""
        return round_up(n_ctx if self.unified else n_ctx // n_seq, CELL_PAD)

    def allocated_bytes(self, n_ctx: Ints, n_seq: int) -> Ints:
        """Bytes of a context of `n_ctx` tokens for `n_seq` sequences on the fullest device."""
        streams = 1 if self.unified else n_seq
        cells = self.context_cells(n_ctx, n_seq)
        total: Ints = n_ctx * 0 + self.state_bytes * n_seq
        for rows in self.rows:
            total = total + streams * rows.layers * rows.row_bytes * self._cells_of(rows, cells, n_seq)
        return total

    def _cells_of(self, rows: Rows, cells: Ints, n_seq: int) -> Ints:
        if rows.ratio > 1:
            return round_up(cdiv(cells, rows.ratio), CELL_PAD)
        if rows.window is None or self.swa_full:
            return cells
        held = rows.window * (n_seq if self.unified else 1) + self.ubatch
        return round_up(minimum(cells, held), CELL_PAD)

    def parts(self, n_ctx: int, n_seq: int) -> dict[str, int]:
        """The log's K and V lines and the states, in bytes."""
        streams, cells = 1 if self.unified else n_seq, self.context_cells(n_ctx, n_seq)
        totals = {"K": 0, "V": 0, "state": self.state_bytes * n_seq}
        for rows in self.rows:
            totals[rows.part] += streams * rows.layers * rows.row_bytes * int(self._cells_of(rows, cells, n_seq))
        return totals

    def pool_bytes(self, kind: str, slots: int) -> int | None:
        """Bytes of `slots` cells (over all streams) of full layers, of sliding ones, or of all; states by sequence."""
        if kind == "state":
            return slots * self.state_bytes or None
        kinds = {"full": (False,), "swa": (True,), "kv": (False, True)}.get(kind, ())
        rows = [r for r in self.rows if (r.window is not None) in kinds]
        return sum(r.layers * r.row_bytes * cdiv(slots, r.ratio) for r in rows) or None

    @property
    def bytes_per_block(self) -> int:
        """256 cells of everything that grows."""
        return sum(CELL_PAD // r.ratio * r.layers * r.row_bytes for r in self.rows if r.window is None)

    def num_blocks(self, pool_bytes: Ints) -> Ints:
        """Multiples of 256 cells that fit beside windows and states."""
        fixed = self.session_bytes(CELL_PAD) - self.bytes_per_block
        return (
            maximum(pool_bytes - fixed, pool_bytes * 0) // self.bytes_per_block
            if self.bytes_per_block
            else pool_bytes * 0
        )

    def blocks_per_session(self, tokens: Ints) -> Ints:
        """Padded cells of one sequence, in multiples of 256."""
        return cdiv(tokens, CELL_PAD)

    def session_bytes(self, tokens: Ints) -> Ints:
        """A context for one sequence."""
        return self.allocated_bytes(tokens, 1)

    def needed_bytes(self, tokens: int) -> int:
        """The context as it is started: -c tokens for -np sequences."""
        return int(self.allocated_bytes(self._n_ctx(tokens, self.n_seq), self.n_seq))

    def _n_ctx(self, tokens: Any, n_seq: int) -> Any:
        """-c: as stated, else every sequence gets the full length."""
        return whole(self.deployment.engine_args, "n_ctx", None) or tokens * n_seq

    def max_batch(self, pool_bytes: Ints, tokens: Ints) -> Ints:
        """Sequences of `tokens` tokens whose separate streams fit."""
        return pool_bytes // maximum(self.session_bytes(tokens), 1)

    def capacity(self, pool_bytes: int) -> Capacity:
        """What is allocated for -c and -np, if it fits."""
        n_ctx = self._n_ctx(self.deployment.max_model_len, self.n_seq)
        cells = int(self.context_cells(n_ctx, self.n_seq)) * (1 if self.unified else self.n_seq)
        cells = cells if self.needed_bytes(self.deployment.max_model_len) <= pool_bytes else 0
        return Capacity(
            block_size=CELL_PAD,
            num_blocks=cells // CELL_PAD,
            kv_tokens=cells,
            max_concurrency=cells / self.deployment.max_model_len,
        )

    def max_context(self, pool_bytes: int, sessions: int = 1) -> int:
        """The longest -c per sequence, by bisection over multiples of 256."""
        low, high = 0, cdiv(self.deployment.max_model_len, CELL_PAD)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.session_bytes(middle * CELL_PAD) * sessions <= pool_bytes
            low, high = (middle, high) if fits else (low, middle - 1)
        return min(low * CELL_PAD, self.deployment.max_model_len)


def _state_rows(group: Any) -> int:
    """Groups of tokens that a compressor keeps: two where they overlap."""
    return 2 if any(a.kind == "compressed" and a.compressor_overlap for a in group.attention) else 1


@lru_cache(maxsize=1024)
def _layout(key: DeploymentKey) -> LlamaCppLayout:
    return LlamaCppLayout(key.deployment)


class LlamaCpp:
    """The engine."""

    name = "llama.cpp"
    default_version = "b11739"
    gpu_axis: Literal["tp", "pp"] = "pp"
    args = frozenset({
        "n_ctx", "n_parallel", "n_seq_max", "n_ubatch", "ubatch_size", "kv_unified", "swa_full", "type_k", "type_v",
    })  # fmt: skip

    def layout(self, deployment: Deployment) -> Layout:
        """Rows and cells; tensor parallelism is refused, for llama.cpp deals out layers."""
        parallel = deployment.parallel
        if parallel.tp > 1 or parallel.dcp > 1:
            raise Unsupported("llama.cpp: deals out layers over GPUs (--split-mode layer); use --pp instead of --tp")
        return _layout(DeploymentKey(deployment))

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """See `kvplan.engines._llama_cpp_memory`."""
        from kvplan.engines._llama_cpp_memory import budget

        return budget(deployment, layout, given_bytes)

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """`llama-server` flags."""
        d, n_seq = deployment, max(1, max_num_seqs)
        parts = [f"-c {d.max_model_len * n_seq}", f"-np {n_seq}", "-ngl 999"]
        if d.kv_dtype != "auto":
            name = {"fp16": "f16", "fp32": "f32"}.get(kv_format(d.kv_dtype).name, kv_format(d.kv_dtype).name)
            parts.append(f"-ctk {name} -ctv {name}")
        return " ".join(parts)


ENGINE = LlamaCpp()
