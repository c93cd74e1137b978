"""The block size: what the kernels take, enlarged until a page of attention holds a recurrent state.

`Platform.update_block_size_for_backend` and its two alignments (0.18 on); before, rules of `platforms/cuda.py` and
`HybridAttentionMambaModelConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

from kvplan.arith import cdiv
from kvplan.engines.vllm.backends import DEFAULT_BLOCK_SIZE, Backend, preferred_block
from kvplan.errors import Unsupported

if TYPE_CHECKING:
    from kvplan.engines.vllm.versions import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What decides a block size: `token_bytes` of one attention layer in the KV dtype, `own_token_bytes` in its own.

    `first_token_bytes`: a quantized token as the backend of the first layer sizes it, which knows only its own packing.
    `state_bytes`: the largest recurrent state, 0 without one. `latent`: whether attention is MLA. `checkpoint_tokens`:
    what blocks must be multiples of so that a prefill can export states. `chunk_tokens`: the state kernel's chunk.
    """

    token_bytes: int
    own_token_bytes: int
    first_token_bytes: int
    state_bytes: int = 0
    latent: bool = False
    sparse: bool = False
    checkpoint_tokens: int = 1
    chunk_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """Tokens of a block, and the page that states, or unquantized layers among quantized ones, pad to (0: none)."""

    block_size: int
    state_page_bytes: int = 0
    shared_page_bytes: int = 0


def choose_block(
    backends: Sequence[Backend],
    asked: int | None,
    sizes: Sizes,
    rules: Rules,
    *,
    major: int,
    state_mode: str,
    skips: bool,
) -> BlockChoice:
    """The block size of one model on one rank."""
    preferred = block = _forced(asked or _of_backends(backends, rules), sizes, rules, major)
    page = 0
    if sizes.state_bytes and sizes.token_bytes:
        block = max(block, _holding_a_state(block, backends, sizes, rules, state_mode))
        page = block * sizes.token_bytes
    shared = 0
    if skips and rules.skip_layers_align and sizes.own_token_bytes != sizes.first_token_bytes:
        block, shared = _covering_unquantized(block, backends, sizes, page)
        page = shared if page else 0
    if block != preferred and rules.block_size_from == "backend":
        _refuse_unless_taken(block, backends)
    return BlockChoice(block, page, shared)


def _of_backends(backends: Sequence[Backend], rules: Rules) -> int:
    if rules.block_size_from == "backend" and backends:
        return preferred_block(backends)
    return DEFAULT_BLOCK_SIZE


def _forced(block: int, sizes: Sizes, rules: Rules, major: int) -> int:
    """From 0.8 to 0.17 MLA kernels forced their block, whatever was asked: FlashMLA 64, CUTLASS 128, FlashInfer 64."""
    if rules.block_size_from != "mla defaults" or not sizes.latent:
        return block
    if sizes.sparse:
        return 64
    if major == 9 and block % 64:
        return 64
    large = 128 if rules.large_mla_pages == "cutlass 128" else 64
    return large if major == 10 and rules.release >= (0, 10) and block % large else block


def _least_kernel(backend: Backend) -> int:
    return min(backend.blocks)


def _holding_a_state(block: int, backends: Sequence[Backend], sizes: Sizes, rules: Rules, state_mode: str) -> int:
    """The smallest block, in steps that the kernels take, whose attention page is at least a state."""
    step = _state_step(block, backends, sizes, rules)
    if state_mode == "all":
        if sizes.chunk_tokens is None:
            raise Unsupported(
                "vLLM: mamba_cache_mode 'all' aligns blocks to the state kernel's chunk; give engine_args "
                "mamba_block_size (the checkpoint's chunk_size), or mamba_cache_mode align"
            )
        step = lcm(step, sizes.chunk_tokens)
    if state_mode == "align":
        step = lcm(step, sizes.checkpoint_tokens)
    needed = step * cdiv(sizes.state_bytes, step * sizes.token_bytes)
    every = lcm(*(_least_kernel(b) for b in backends)) if rules.block_size_from == "backend" and backends else 1
    return every * cdiv(needed, every)


def _state_step(block: int, backends: Sequence[Backend], sizes: Sizes, rules: Rules) -> int:
    if rules.hybrid_mla_block == "fixed 64":
        return 64 if sizes.latent else DEFAULT_BLOCK_SIZE
    step = max(_least_kernel(backends[0]), block)
    return max(step, 128) if sizes.latent and rules.hybrid_mla_block == "at least 128" else step


def _covering_unquantized(block: int, backends: Sequence[Backend], sizes: Sizes, page: int) -> tuple[int, int]:
    """A block whose quantized page covers the smallest page of the layers that stay unquantized; and that page."""
    kernel = _least_kernel(backends[0])
    required = max(sizes.own_token_bytes * kernel, page)
    step = max(kernel, block)
    block = max(block, step * cdiv(required, step * sizes.first_token_bytes))
    return block, block * sizes.first_token_bytes


def _refuse_unless_taken(block: int, backends: Sequence[Backend]) -> None:
    rejecting = [b.name for b in backends if not b.takes(block)]
    if rejecting:
        raise Unsupported(
            f"Aligned KV cache block size {block} is not supported by attention backend(s): {', '.join(rejecting)}."
        )
