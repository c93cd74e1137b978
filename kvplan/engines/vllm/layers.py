"""The caches that vLLM registers for one layer on one rank, as pages.

Beside K and V or a latent, vLLM keeps indexer keys apart, pads pages among siblings, and lets windows pick blocks of
their own. Sources: `get_kv_cache_spec` of the layers (0.33).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.arith import cdiv
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mamba import Mamba2
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.vllm.compressed import compressed
from kvplan.engines.vllm.mixers import is_state, window_of
from kvplan.engines.vllm.pages import PageSpec
from kvplan.engines.vllm.sizes import Rank, checkpoint_tokens, role_bytes, state_page_bytes, token_bytes
from kvplan.errors import Unsupported

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.engines.vllm.backends import Backend
    from kvplan.engines.vllm.formats import KvDtype

_ROW_ALIGNED = {
    "FLASH_ATTN_MLA_SPARSE": 1, "FLASHMLA_SPARSE": 1, "FLASHINFER_MLA_SPARSE": 32, "FLASHINFER_MLA_SPARSE_SM90": 64,
}  # fmt: skip
"""Sparse kernels read the cache as rows, in pages of so many rows."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How one layer is cut: the KV dtype and the backend that serve it, the block, and the page that a state pads to.

    `shared_page_bytes`: the page that unquantized layers pad to among quantized ones. `state_block`: None for a block
    as long as the context.
    """

    kv: KvDtype
    backend: Backend | None
    block_size: int
    state_block: int | None = None
    state_page_bytes: int = 0
    shared_page_bytes: int = 0


def caches(attention: Attention, cut: Cut, rank: Rank) -> Iterator[tuple[str, PageSpec]]:
    """(suffix of its name, pages) of every cache that one layer registers, in the order in which it does."""
    if is_state(attention):
        yield "mamba", _state(attention, cut, rank)
    elif isinstance(attention, CompressedAttention):
        yield from compressed(attention, cut.kv)
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
    exports = checkpoint_tokens(attention, rank) > 1
    if isinstance(attention, Mamba2):
        exports = rank.rules.mamba2_checkpoint
    states = {"none": 1, "align": 2 + exports, "all": 0}[rank.state_mode] + rank.drafts
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
        raise Unsupported("vLLM: the index cache of block-sparse GQA (MiniMax-M3) is not modelled")
    pages = _heads(attention, cut, rank)
    window = window_of(attention)
    if window:
        return replace(
            pages,
            growth="sliding",
            bound=window,
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
    sizes, least = cut.backend.blocks, cut.backend.blocks[0]
    if cut.backend.multiples:
        return least * max(1, most // least)
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
    size = role_bytes(attention.tensors(), cut.kv, rank.tp, "index_k")
    return PageSpec(growth="full", block_size=cut.block_size, state_bytes=size, latent=True, geometry=("index",))
