"""From attention kinds to the caches that vLLM registers for one layer on one rank.

Bytes come from the kind's own cache tensors and from `kvplan.storage`; what vLLM adds are pages, paddings and the
caches that it keeps apart (indexer keys, DeepSeek-V4's windows and compressor states). Sources: `get_kv_cache_spec` of the
layers and `layers/mamba/mamba_utils.py` (0.33).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, round_up
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Rwkv
from kvplan.attention.mamba import Mamba2
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.attention.none import NoCache, SharedCache
from kvplan.engines._vllm_pages import PageSpec
from kvplan.errors import Unsupported
from kvplan.storage import FP32

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.cache import CacheTensor
    from kvplan.engines._vllm_backends import Backend
    from kvplan.engines._vllm_formats import KvDtype
    from kvplan.engines._vllm_versions import Rules
    from kvplan.storage import Role, Storage

V4_BLOCK, V4_WINDOW_BLOCK = 256, 64
_V4_STATE_BLOCKS = {4: 4, 128: 8}
_V4_ALIGN_BYTES = 576
_FP8_DS_MLA_SPARSE = frozenset({"FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120"})
_ROW_ALIGNED = {"FLASH_ATTN_MLA_SPARSE": 1, "FLASHMLA_SPARSE": 1, "FLASHINFER_MLA_SPARSE": 32, "FLASHINFER_MLA_SPARSE_SM90": 64}
"""Sparse kernels read the cache as rows, in pages of so many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What sizes a layer's cache on one rank: release, ranks that share heads, dtypes, drafted tokens, state mode."""

    rules: Rules
    major: int
    tp: int
    own: KvDtype
    conv: Storage
    recurrent: Storage | None
    drafts: int
    state_mode: str


@dataclass(frozen=True, slots=True)
class Cut:
    """How one layer is cut: the KV dtype and the backend that serve it, the block, and the page that a state pads to.

    `shared_page_bytes`: the page that unquantized layers pad to among quantized ones. `state_block`: None for a block as
    long as the context.
    """

    kv: KvDtype
    backend: Backend | None
    block_size: int
    state_block: int | None = None
    state_page_bytes: int = 0
    shared_page_bytes: int = 0


def is_state(attention: Attention) -> bool:
    """Whether its cache is a recurrent state, which vLLM keeps one to a block."""
    return attention.family == "recurrent"


def has_cache(attention: Attention) -> bool:
    """Whether vLLM registers a cache for it at all."""
    return not isinstance(attention, NoCache | SharedCache)


def _bytes(tensors: tuple[CacheTensor, ...], kv: KvDtype, tp: int, *roles: Role) -> int:
    return sum(t.bytes_per_slot(kv.format, tp) for t in tensors if t.role in roles)


def token_bytes(attention: Attention, kv: KvDtype, rank: Rank) -> int:
    """Bytes of one token of attention (not of an indexer) on this rank: K and V, or the latent with its rotary key."""
    tensors = attention.tensors()
    if isinstance(attention, MultiHeadLatentAttention):
        return _latent_bytes(attention, kv, rank)
    if kv.even_slots:
        heads = cdiv(tensors[0].heads, rank.tp)
        return heads * round_up(_bytes(tensors, kv, tensors[0].heads, "k", "v"), 2)
    return _bytes(tensors, kv, rank.tp, "k", "v")


def _latent_bytes(attention: MultiHeadLatentAttention, kv: KvDtype, rank: Rank) -> int:
    if rank.rules.mla_cache == "padded heads":
        return 2 * cdiv(attention.num_attention_heads, rank.tp) * kv.format.default.vector_bytes(256)
    own = _bytes(attention.tensors(), kv, rank.tp, "latent", "rope")
    return round_up(own, 256) if rank.rules.mla_cache == "latent, rows of 256 B" else own


def stored_kv(attention: Attention, kv: KvDtype, backend: Backend | None, sparse_ds_mla: KvDtype) -> KvDtype:
    """The KV dtype that a sparse backend makes of the one asked for: FlashMLA keeps every fp8 as `fp8_ds_mla`."""
    if not isinstance(attention, MultiHeadLatentAttention) or backend is None or backend.name not in _FP8_DS_MLA_SPARSE:
        return kv
    quantized = kv.quantized or backend.name.endswith("SM120")
    return sparse_ds_mla if quantized and kv.name != "nvfp4_ds_mla" else kv


def state_page_bytes(attention: Attention, rank: Rank) -> int:
    """A layer's whole recurrent state on this rank; drafted tokens add columns to its convolution."""
    if isinstance(attention, Rwkv):
        raise Unsupported(f"vLLM {rank.rules.release[0]}.{rank.rules.release[1]} runs no RWKV models")
    recurrent = rank.recurrent or (FP32 if isinstance(attention, KimiDeltaAttention) else rank.conv)
    total = 0
    for tensor in attention.tensors():
        elements = cdiv(tensor.heads, rank.tp) * tensor.dim
        if tensor.role == "conv_state":
            columns = getattr(attention, "conv_kernel") - 1  # noqa: B009
            total += rank.conv.vector_bytes(elements // columns * (columns + rank.drafts))
        else:
            total += (rank.conv if isinstance(attention, LightningAttention) else recurrent).vector_bytes(elements)
    return total


def checkpoint_tokens(attention: Attention, rank: Rank) -> int:
    """Tokens between the states that a prefill can export midway: FlashInfer's GDN kernel, where vLLM picks it; else 1.

    Hopper, and data-centre or desktop Blackwell with keys of 128 (`_resolve_gdn_prefill_backend`).
    """
    if not (rank.rules.gdn_checkpoint and rank.state_mode == "align" and isinstance(attention, GatedDeltaNet)):
        return 1
    flashinfer = rank.major == 9 or (rank.major in {10, 12} and attention.key_head_dim == 128)
    return 64 if flashinfer else 1


def caches(attention: Attention, cut: Cut, rank: Rank) -> Iterator[tuple[str, PageSpec]]:
    """(suffix of its name, pages) of every cache that one layer registers, in the order in which it does."""
    if is_state(attention):
        yield "mamba", _state(attention, cut, rank)
    elif isinstance(attention, CompressedAttention):
        yield from _compressed(attention, cut, rank)
    elif isinstance(attention, MultiHeadLatentAttention):
        if attention.index_head_dim and not attention.shares_index:
            yield "indexer.k_cache", _indexer(attention, cut, rank)
        yield "attn", _latent(attention, cut, rank)
    elif isinstance(attention, CrossAttention):
        yield "encoder_attn", replace(_heads(attention, cut, rank), growth="encoder")
    elif isinstance(attention, GroupedQueryAttention):
        yield "attn", _grouped(attention, cut, rank)


def _state(attention: Attention, cut: Cut, rank: Rank) -> PageSpec:
    """`none` and `align` keep a few states of a session, `all` one at the end of every block."""
    checkpoint = rank.rules.mamba2_checkpoint if isinstance(attention, Mamba2) else checkpoint_tokens(attention, rank) > 1
    states = {"none": 1, "align": 2 + checkpoint, "all": 0}[rank.state_mode] + rank.drafts
    return PageSpec(
        growth="state per block" if rank.state_mode == "all" else "state",
        block_size=cut.state_block,
        state_bytes=state_page_bytes(attention, rank),
        padded_bytes=cut.state_page_bytes,
        states=states,
    )


def _kernel_block(backend: Backend | None) -> int:
    """Backends with fixed kernel blocks need packed blocks to hold whole ones."""
    return max(backend.blocks) if backend is not None and not backend.multiples else 0


def _heads(attention: GroupedQueryAttention | CrossAttention, cut: Cut, rank: Rank) -> PageSpec:
    key, value = attention.tensors()[:2]
    return PageSpec(
        growth="full",
        block_size=cut.block_size,
        state_bytes=token_bytes(attention, cut.kv, rank),
        geometry=(cdiv(key.heads, rank.tp), key.dim, value.dim, cut.kv.name),
        kernel_block=_kernel_block(cut.backend),
    )


def _grouped(attention: GroupedQueryAttention, cut: Cut, rank: Rank) -> PageSpec:
    if attention.index_head_dim:
        raise Unsupported("vLLM: the index cache of block-sparse GQA (MiniMax-M3) is not modelled; use its dense sibling")
    pages = _heads(attention, cut, rank)
    if attention.sliding_window:
        return replace(
            pages,
            growth="sliding",
            bound=attention.sliding_window,
            block_size=_window_block(pages, cut, rank),
            padded_bytes=cut.shared_page_bytes,
        )
    if attention.attention_chunk_size:
        if not rank.rules.chunked_groups:
            return pages
        return replace(pages, growth="chunked", bound=attention.attention_chunk_size)
    return pages


def _window_block(pages: PageSpec, cut: Cut, rank: Rank) -> int:
    """A window picks its own block since 0.25: the largest that the kernel runs unsplit within the shared page."""
    if not rank.rules.sliding_block_of_its_own or cut.backend is None:
        return cut.block_size
    most = cut.shared_page_bytes // pages.state_bytes if cut.shared_page_bytes else cut.block_size
    sizes = [cut.backend.blocks[0] * max(1, most // cut.backend.blocks[0])] if cut.backend.multiples else cut.backend.blocks
    return max((s for s in sizes if s <= most), default=min(sizes))


def _latent(attention: MultiHeadLatentAttention, cut: Cut, rank: Rank) -> PageSpec:
    size = token_bytes(attention, cut.kv, rank)
    name = cut.backend.name if cut.backend else ""
    rows = _ROW_ALIGNED.get(name, 0)
    if name == "FLASHMLA_SPARSE" and cut.kv.quantized and rank.major != 10:
        rows = 0
    return PageSpec(
        growth="full",
        block_size=cut.block_size,
        state_bytes=size,
        latent=True,
        geometry=(1, attention.kv_lora_rank + attention.qk_rope_head_dim, 0, cut.kv.name),
        kernel_block=0 if rows else _kernel_block(cut.backend),
        stride_bytes=rows * size or 1,
    )


def _indexer(attention: MultiHeadLatentAttention, cut: Cut, rank: Rank) -> PageSpec:
    if attention.index_pool > 1:
        raise Unsupported("vLLM: the pooled index cache of GLM-5.3-Flash is not modelled")
    size = _bytes(attention.tensors(), cut.kv, rank.tp, "index_k")
    return PageSpec(growth="full", block_size=cut.block_size, state_bytes=size, latent=True, geometry=("index",))


def _compressed(attention: CompressedAttention, cut: Cut, rank: Rank) -> Iterator[tuple[str, PageSpec]]:
    """DeepSeek-V4: a window of records, and where a layer compresses, its records, its state, and an indexer's two."""
    ratio = attention.compress_ratio
    if not attention.owns_entries or ratio not in {0, 1, *_V4_STATE_BLOCKS}:
        raise Unsupported(f"vLLM: the cache of layers compressed by {ratio} (DeepSeek-V4.1) is not modelled")
    record, *rest = _records(attention, cut.kv)
    base = PageSpec(growth="full", block_size=V4_BLOCK, state_bytes=record, latent=True, align_bytes=_V4_ALIGN_BYTES)
    window = replace(base, growth="sliding", block_size=V4_WINDOW_BLOCK, bound=attention.sliding_window)
    yield "swa_cache", replace(window, geometry=(attention.head_dim,))
    if ratio <= 1:
        return
    state = replace(
        window,
        block_size=_V4_STATE_BLOCKS[ratio],
        bound=ratio * (1 + attention.compressor_overlap),
    )
    packed = replace(base, tokens_per_state=ratio, kernel_block=V4_BLOCK)
    if attention.index_head_dim:
        index_bytes, index_state = rest[1:]
        yield "indexer.k_cache", replace(packed, state_bytes=index_bytes, geometry=("index",))
        yield "indexer.state_cache", replace(state, state_bytes=index_state, geometry=("index state",))
    yield "attn", replace(packed, geometry=(attention.head_dim,))
    yield "compressor.state_cache", replace(state, state_bytes=rest[0], geometry=("state",))


def _records(attention: CompressedAttention, kv: KvDtype) -> list[int]:
    """Bytes of one window record, of one compressor state, of one index key, of one index state, as far as there are."""
    record, parts = 0, []
    for tensor in attention.tensors():
        size = tensor.bytes_per_slot(kv.format)
        if tensor.role in ("entry", "entry_rope"):
            record += size
        else:
            parts.append(size)
    return [record // (2 if parts else 1), *parts]
