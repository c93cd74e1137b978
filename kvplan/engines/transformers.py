"""transformers 5.x: no pages, no pool; a cache that grows by concatenation, or a static one.

Rules: measured on transformers 5.14.1 and 5.24.0. Latents are stored since
5.15.0 (sparse MLA since 5.18.0); before, every head's K and V. A sliding layer keeps window - 1 tokens; right after a
prefill its slice still pins the whole prompt. Linear layers keep all `conv_kernel` columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from kvplan.arith import cdiv, maximum, minimum
from kvplan.attention import Attention
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.budget import Budget
from kvplan.cache import CacheTensor, Fixed, PerToken, Window
from kvplan.engines.base import Capacity, DeploymentKey, choose
from kvplan.errors import BadInput, Unsupported
from kvplan.storage import FP32, TORCH_DTYPES, KvFormat, Storage, kv_format

if TYPE_CHECKING:
    from kvplan.arith import Ints
    from kvplan.engines.base import Deployment, Layout

LATENT_SINCE, SPARSE_LATENT_SINCE = (5, 15), (5, 18)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of whole groups of `ratio` tokens: what is not a whole group yet waits in a buffer."""

    ratio: int

    def slots(self, tokens: Ints) -> Ints:
        """tokens // ratio."""
        return tokens // self.ratio


@dataclass(frozen=True, slots=True)
class Buffer:
    """Tokens of the group that is not whole yet."""

    ratio: int

    def slots(self, tokens: Ints) -> Ints:
        """tokens modulo ratio."""
        return tokens % self.ratio


@dataclass(frozen=True, slots=True)
class Overlap:
    """The tokens of the last whole group, kept for the next one to overlap with."""

    ratio: int

    def slots(self, tokens: Ints) -> Ints:
        """`ratio` once there is a whole group."""
        return minimum(tokens // self.ratio, 1) * self.ratio


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one slot over some layers, and the law of its slots; `pinned`: a prefill leaves its whole prompt."""

    slot_bytes: int
    law: PerToken | Window | Fixed | Groups | Buffer | Overlap
    pinned: bool = False


def version_of(deployment: Deployment) -> tuple[int, int]:
    """(major, minor)."""
    major, minor, *_ = [*(deployment.version or Transformers.default_version).split("."), "0"]
    if not (major.isdecimal() and minor.isdecimal()):
        raise Unsupported(f"transformers: version {deployment.version!r} is not major.minor")
    return int(major), int(minor)


def _latent_is_stored(attention: MultiHeadLatentAttention, version: tuple[int, int]) -> bool:
    return version >= (SPARSE_LATENT_SINCE if attention.index_head_dim or attention.shares_index else LATENT_SINCE)


def _mla_tensors(attention: MultiHeadLatentAttention, version: tuple[int, int]) -> Iterator[CacheTensor]:
    """The latent, or the expanded heads of older releases; the index key where the layer owns one."""
    if _latent_is_stored(attention, version):
        yield from attention.tensors()
        return
    heads = attention.num_attention_heads
    yield CacheTensor("k", heads, attention.qk_nope_head_dim + attention.qk_rope_head_dim, PerToken())
    yield CacheTensor("v", heads, attention.v_head_dim, PerToken())
    yield from (t for t in attention.tensors() if t.role == "index_k")


def _compressed_parts(attention: CompressedAttention, element: Storage, version: tuple[int, int]) -> Iterator[Part]:
    """Window rows (twice where the layer only slides: K and V are two copies), compressed rows, and buffers.

    A compressor buffers value and gate of the tokens not folded yet; an overlapping one also keeps the last group, its
    gate in fp32 in 5.24.0 and in 16 bit in 5.14.1 (the switch lies between; taken as 5.15).
    """
    copies, dim = (1 if attention.compress_ratio else 2), attention.head_dim
    yield Part(copies * element.vector_bytes(dim), Window(attention.sliding_window - 1), pinned=True)
    if attention.compress_ratio:
        row, ratio = dim + (attention.index_head_dim or 0), attention.compress_ratio
        yield Part(element.vector_bytes(row), Groups(ratio))
        yield Part(2 * (1 + attention.compressor_overlap) * element.vector_bytes(row), Buffer(ratio))
        if attention.compressor_overlap:
            gate = FP32 if version >= LATENT_SINCE else element
            yield Part(element.vector_bytes(row) + gate.vector_bytes(row), Overlap(ratio))


def _parts(attention: Attention, element: Storage, version: tuple[int, int], *, static: bool) -> Iterator[Part]:
    """The cache of one layer."""
    if isinstance(attention, CompressedAttention):
        yield from _compressed_parts(attention, element, version)
        return
    tensors = (
        _mla_tensors(attention, version)
        if isinstance(attention, MultiHeadLatentAttention)
        else iter(attention.tensors())
    )
    for tensor in tensors:
        storage = FP32 if tensor.role == "recurrent_state" else element
        size = tensor.heads * storage.vector_bytes(tensor.dim)
        if tensor.role == "conv_state":
            size += size // max(1, _columns(attention) - 1)  # all columns, not all but one
        if isinstance(tensor.law, Window):
            yield Part(size, Window(tensor.law.tokens - (0 if static else 1)), pinned=not static)
        else:
            yield Part(size, tensor.law)


def _columns(attention: Attention) -> int:
    return int(getattr(attention, "conv_kernel", 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingCache:
    """`DynamicCache` (or `StaticCache` of the maximum length). See `kvplan.engines.base.Layout`."""

    kv_dtype: str
    kv_format: KvFormat
    parts: tuple[Part, ...]
    max_model_len: int
    max_num_seqs: int
    static: bool
    notes: tuple[str, ...] = ()
    block_size: int = 1
    max_num_batched_tokens: int = 0
    cache: Literal["DynamicCache", "StaticCache"] = "DynamicCache"

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one token in everything that grows, compressed rows as their share rounded up."""
        return sum(cdiv(p.slot_bytes, p.law.ratio) for p in self.parts if isinstance(p.law, (PerToken, Groups)))

    def session_bytes(self, tokens: Ints) -> Ints:
        """Bytes that the tensors of one sequence show; a static cache has its full length from the start."""
        length = tokens * 0 + self.max_model_len if self.static else tokens
        total: Ints = tokens * 0
        for part in self.parts:
            total = total + part.slot_bytes * part.law.slots(length)
        return total

    def storage_bytes(self, tokens: Ints, decoded: int = 0) -> Ints:
        """Bytes of memory behind them: after a prefill a window pins its whole prompt, after a step one row more."""
        length = tokens * 0 + self.max_model_len if self.static else tokens
        total: Ints = tokens * 0
        for part in self.parts:
            rows = part.law.slots(length)
            if part.pinned and isinstance(part.law, Window):
                rows = minimum(length, part.law.tokens + 1) if decoded else length
            total = total + part.slot_bytes * rows
        return total

    def num_blocks(self, pool_bytes: Ints) -> Ints:
        """Tokens that fit in one sequence beside its fixed parts."""
        fixed = self.session_bytes(1) - self.bytes_per_block
        per_token = self.bytes_per_block
        return maximum(pool_bytes - fixed, pool_bytes * 0) // per_token if per_token else pool_bytes * 0

    def blocks_per_session(self, tokens: Ints) -> Ints:
        """Every token is a block of its own."""
        return tokens

    def pool_bytes(self, kind: str, slots: int) -> int | None:
        """There are no pools."""
        return None

    def needed_bytes(self, tokens: int) -> int:
        """One sequence, its prompt pinned."""
        return int(self.storage_bytes(tokens))

    def max_batch(self, pool_bytes: Ints, tokens: Ints) -> Ints:
        """Sequences of one batch, padded to the longest, at the peak after their prefill."""
        return minimum(pool_bytes // maximum(self.storage_bytes(tokens), 1), self.max_num_seqs)

    def capacity(self, pool_bytes: int) -> Capacity:
        """No engine prints this: tokens of sequences of full length that fit."""
        sessions = int(self.max_batch(pool_bytes, self.max_model_len))
        tokens = sessions * self.max_model_len
        return Capacity(block_size=1, num_blocks=tokens, kv_tokens=tokens, max_concurrency=float(sessions))

    def max_context(self, pool_bytes: int, sessions: int = 1) -> int:
        """By bisection."""
        low, high = 0, self.max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if int(self.storage_bytes(middle)) * sessions <= pool_bytes else (low, middle - 1)
            )
        return low


@lru_cache(maxsize=1024)
def _layout(key: DeploymentKey) -> GrowingCache:
    d = key.deployment
    dtype = kv_format(d.spec.torch_dtype if d.kv_dtype == "auto" else d.kv_dtype)
    if dtype.default not in set(TORCH_DTYPES.values()):
        raise Unsupported(f"transformers: caches are stored in the model's dtype (bf16, fp16, fp32), not {dtype.name}")
    implementation = choose(d.engine_args, "cache_implementation", "dynamic")
    if implementation not in {"dynamic", "static"}:
        raise BadInput(f"engine_args: cache_implementation: {implementation!r} is not dynamic or static")
    static = implementation == "static"
    version = version_of(d)
    parts = [
        Part(len(group.indices) * part.slot_bytes, part.law, part.pinned)
        for group in d.spec.layer_groups
        for attention in group.attention
        for part in _parts(attention, dtype.default, version, static=static)
    ]
    return GrowingCache(
        kv_dtype=dtype.name,
        kv_format=dtype.with_roles(index_k=dtype.default, conv_state=dtype.default),
        parts=tuple(parts),
        max_model_len=d.max_model_len,
        max_num_seqs=d.max_num_seqs or 2**31,
        static=static,
        notes=("Growth by concatenation holds the old and the new tensor of a layer for a moment.",),
    )


class Transformers:
    """The engine."""

    name = "transformers"
    default_version = "5.24"
    gpu_axis: Literal["tp", "pp"] = "tp"
    args = frozenset({"cache_implementation"})

    def layout(self, deployment: Deployment) -> Layout:
        """One sequence's tensors; the library's own generate has no tensor parallelism of the cache to plan."""
        parallel = deployment.parallel
        if parallel.tp > 1 or parallel.pp > 1 or parallel.dcp > 1:
            raise Unsupported("transformers: plan one GPU; its cache is not shared out over ranks")
        return _layout(DeploymentKey(deployment))

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """See `kvplan.engines._transformers_memory`."""
        from kvplan.engines._transformers_memory import budget

        return budget(deployment, given_bytes)

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """What to pass to `generate`."""
        return f"max_length={deployment.max_model_len}, batch of {max_num_seqs}"


ENGINE = Transformers()
