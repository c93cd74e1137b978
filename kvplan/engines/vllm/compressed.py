"""DeepSeek-V4's caches: windows of records, compressed records, compressor states, indexer keys, in pages of their own.

`models/deepseek_v4` and `v1/kv_cache_interface.py` (0.33).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.engines.vllm.pages import PageSpec
from kvplan.errors import Unsupported

if TYPE_CHECKING:
    from kvplan.attention.compressed import CompressedAttention
    from kvplan.engines.vllm.formats import KvDtype

BLOCK_TOKENS, WINDOW_BLOCK_TOKENS = 256, 64
_STATE_BLOCKS = {4: 4, 128: 8}
_ALIGN_BYTES = 576


def compressed(attention: CompressedAttention, kv: KvDtype) -> Iterator[tuple[str, PageSpec]]:
    """DeepSeek-V4: a window of records, and where a layer compresses, its records, its state, and an indexer's two."""
    ratio = attention.compress_ratio
    if not attention.owns_entries or ratio not in {0, 1, *_STATE_BLOCKS}:
        raise Unsupported(f"vLLM: the cache of layers compressed by {ratio} (DeepSeek-V4.1) is not modelled")
    record, *rest = _records(attention, kv)
    base = PageSpec(growth="full", block_size=BLOCK_TOKENS, state_bytes=record, latent=True, align_bytes=_ALIGN_BYTES)
    window = replace(base, growth="sliding", block_size=WINDOW_BLOCK_TOKENS, bound=attention.sliding_window)
    yield "swa_cache", replace(window, geometry=(attention.head_dim,))
    if ratio <= 1:
        return
    state = replace(
        window,
        block_size=_STATE_BLOCKS[ratio],
        bound=ratio * (1 + attention.compressor_overlap),
    )
    packed = replace(base, tokens_per_state=ratio, kernel_block=BLOCK_TOKENS)
    if attention.index_head_dim:
        index_bytes, index_state = rest[1:]
        yield "indexer.k_cache", replace(packed, state_bytes=index_bytes, geometry=("index",))
        yield "indexer.state_cache", replace(state, state_bytes=index_state, geometry=("index state",))
    yield "attn", replace(packed, geometry=(attention.head_dim,))
    yield "compressor.state_cache", replace(state, state_bytes=rest[0], geometry=("state",))


def _records(attention: CompressedAttention, kv: KvDtype) -> list[int]:
    """Bytes of one window record, one compressor state, one index key, one index state, as far as there are."""
    record, parts = 0, []
    for tensor in attention.tensors():
        size = tensor.bytes_per_slot(kv.format)
        if tensor.role in ("entry", "entry_rope"):
            record += size
        else:
            parts.append(size)
    return [record // (2 if parts else 1), *parts]
