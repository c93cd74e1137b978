"""From tensors to launches: what a step needs, checked; the kernel's arguments; both stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor  # type: ignore[import-untyped]

from kvplan.arith import cdiv
from kvplan.errors import BadInput
from kvplan.validate.kernels.triton_mla.configs import (
    LATENT_DIM,
    MIN_KEYS_PER_SPLIT,
    ROPE_DIM,
    DecodePlan,
    DecodeShape,
    Tile,
    canonical_kv_dtype,
)
from kvplan.validate.kernels.triton_mla.kernels import merge_splits, split_kv_decode
from kvplan.validate.kernels.triton_mla.views import cache_views

INTERPRETED = not isinstance(split_kv_decode, triton.JITFunction)
"""Whether TRITON_INTERPRET was set when triton was imported: then the kernels are numpy, and run on CPU tensors."""
QUERY_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_PRODUCT_DTYPES = {"fp32": tl.float32, "bf16": tl.bfloat16, "fp16": tl.float16}
_MERGE_COLUMNS, _MERGE_SPLITS = 128, 32
Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeInputs:
    """One decode step of one layer; `BadInput` where the tensors do not fit together.

    q_latent      [batch, query tokens, heads, 512] in bf16, fp16 or fp32; q_rope [batch, query tokens, heads, 64]
    cache         [blocks, slots of a block, entry], or without a block table [batch, slots of a session, entry];
                  an entry in elements, or in bytes (uint8)
    seq_lens      int32 [batch], tokens in the cache, those of the query included
    block_table   int32 [batch, blocks of a session]; what stands behind a session's last block is not read
    softmax_scale 1/sqrt(qk_nope + qk_rope), times mscale^2 under YaRN
    kv_scale      what one unit of an fp8 cache is worth, the same in the whole tensor
    """

    q_latent: Tensor
    q_rope: Tensor
    cache: Tensor
    seq_lens: Tensor
    block_table: Tensor | None
    softmax_scale: float
    kv_dtype: str
    kv_scale: float = 1.0

    def __post_init__(self) -> None:
        _check_queries(self.q_latent, self.q_rope, canonical_kv_dtype(self.kv_dtype))
        _check_cache(self.cache, self.seq_lens, self.block_table, self.q_latent.shape[0])
        if not self.softmax_scale > 0:
            raise BadInput(f"softmax_scale is {self.softmax_scale}; it must be positive")

    @property
    def shape(self) -> DecodeShape:
        """The shape; lengths stay on the device, so its longest session is what the cache has room for."""
        batch, query_tokens, num_heads, _ = self.q_latent.shape
        slots, table = self.cache.shape[1], self.block_table
        return DecodeShape(
            batch=batch,
            num_heads=num_heads,
            max_seq_len_tokens=slots if table is None else slots * table.shape[1],
            query_tokens=query_tokens,
            kv_dtype=self.kv_dtype,
            query_dtype=QUERY_DTYPES[self.q_latent.dtype],
            block_size=None if table is None else slots,
        )


def _check_queries(q_latent: Tensor, q_rope: Tensor, kv_dtype: str) -> None:
    shapes = tuple(q_latent.shape), tuple(q_rope.shape)
    if q_latent.dim() != 4 or shapes != ((*shapes[0][:3], LATENT_DIM), (*shapes[0][:3], ROPE_DIM)):
        raise BadInput(f"queries are [batch, query tokens, heads, {LATENT_DIM}] and {ROPE_DIM}, not {shapes}")
    dtype = QUERY_DTYPES.get(q_latent.dtype)
    if dtype is None or q_rope.dtype != q_latent.dtype:
        raise BadInput(f"queries are both bf16, fp16 or fp32, not {q_latent.dtype} and {q_rope.dtype}")
    if dtype not in {"fp32", kv_dtype} and not kv_dtype.startswith("fp8"):
        raise BadInput(f"{dtype} queries against a {kv_dtype} cache; they must be {kv_dtype} or fp32")


def _check_cache(cache: Tensor, seq_lens: Tensor, block_table: Tensor | None, batch: int) -> None:
    if seq_lens.dtype != torch.int32 or tuple(seq_lens.shape) != (batch,):
        raise BadInput(f"seq_lens is int32 [{batch}], not {seq_lens.dtype} {tuple(seq_lens.shape)}")
    if block_table is None:
        if cache.shape[0] != batch:
            raise BadInput(f"a cache without a block table is [{batch} sessions, ...], not [{cache.shape[0]}, ...]")
        return
    if block_table.dtype != torch.int32 or block_table.shape[0] != batch or block_table.stride(-1) != 1:
        raise BadInput(f"block_table is int32 [{batch}, blocks], not {block_table.dtype} {tuple(block_table.shape)}")
    block_size = cache.shape[1]
    if block_size < 16 or block_size & (block_size - 1):
        raise BadInput(f"a block of {block_size} slots; the Triton MLA kernel takes powers of two from 16 up")


def _descriptor(matrix: Tensor, block_n: int) -> TensorDescriptor:
    """Tiles of `block_n` whole rows."""
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), [block_n, matrix.shape[1]])


def _tile_constants(tile: Tile, product_dtype: tl.dtype) -> Arguments:
    return {
        "DOT": product_dtype,
        "BLOCK_H": tile.block_h,
        "BLOCK_N": tile.block_n,
        "STAGES": tile.num_stages,
        "TMA": tile.tma,
        "MIN_KEYS": MIN_KEYS_PER_SPLIT,
    }


def _query_arguments(inputs: DecodeInputs) -> Arguments:
    """Queries as matrices, one row for each query token and head; a view where their strides allow it."""
    q_latent, q_rope = inputs.q_latent.flatten(0, 2), inputs.q_rope.flatten(0, 2)
    return {
        "q_latent_ptr": q_latent,
        "q_rope_ptr": q_rope,
        "num_rows": inputs.shape.rows,
        "QUERY_TOKENS": inputs.shape.query_tokens,
        "Q_LATENT_STRIDE": q_latent.stride(0),
        "Q_ROPE_STRIDE": q_rope.stride(0),
    }


def _cache_arguments(inputs: DecodeInputs, tile: Tile) -> Arguments:
    views, table = cache_views(inputs.cache, inputs.kv_dtype), inputs.block_table
    return {
        "latent_ptr": views.latent,
        "rope_ptr": views.rope,
        "scale_ptr": views.scale,
        "latent_tiles": _descriptor(views.latent, tile.block_n) if tile.tma else None,
        "rope_tiles": _descriptor(views.rope, tile.block_n) if tile.tma else None,
        "table_ptr": table,
        "lengths_ptr": inputs.seq_lens,
        "table_stride": inputs.cache.shape[1] if table is None else table.stride(0),
        "PAGE": 0 if table is None else inputs.cache.shape[1],
        "LATENT_STRIDE": views.latent.stride(0),
        "ROPE_STRIDE": views.rope.stride(0),
        "SCALE_STRIDE": 0 if views.scale is None else views.scale.stride(0),
    }


def decode_arguments(inputs: DecodeInputs, plan: DecodePlan) -> Arguments:
    """What `split_kv_decode` takes beside its results, by name. The interpreter's numpy has no bf16: fp32 products."""
    dtype = "fp32" if INTERPRETED else QUERY_DTYPES[inputs.q_latent.dtype]
    return {
        **_query_arguments(inputs),
        **_cache_arguments(inputs, plan.tile),
        **_tile_constants(plan.tile, _PRODUCT_DTYPES[dtype]),
        "score_scale": inputs.softmax_scale * inputs.kv_scale / math.log(2),
        "value_scale": inputs.kv_scale,
        "num_splits": plan.num_splits,
    }


def results(inputs: DecodeInputs, num_splits: int) -> tuple[Tensor, Tensor]:
    """Room for out [batch, splits, rows, 512] and lse [batch, splits, rows]: fp32 if split, else out as the queries."""
    dtype = inputs.q_latent.dtype if num_splits == 1 else torch.float32
    lse = torch.empty(inputs.shape.batch, num_splits, inputs.shape.rows, device=inputs.q_latent.device)
    return lse.new_empty(*lse.shape, LATENT_DIM, dtype=dtype), lse


def merge_arguments(partial_lse: Tensor) -> Arguments:
    """What `merge_splits` takes beside its tensors, by name."""
    _, num_splits, rows = partial_lse.shape
    return {"num_rows": rows, "num_splits": num_splits, "BLOCK_D": _MERGE_COLUMNS, "BLOCK_S": _MERGE_SPLITS}


def prepare(inputs: DecodeInputs, plan: DecodePlan) -> Callable[[], tuple[Tensor, Tensor]]:
    """What runs the step and returns out [batch, query tokens, heads, 512] and lse [batch, query tokens, heads].

    Views and descriptors are made here, once; a run allocates its results and, if split, `plan.scratch_bytes`.
    """
    shape, arguments = inputs.shape, decode_arguments(inputs, plan)
    options = {"num_warps": plan.tile.num_warps, "num_stages": plan.tile.num_stages}
    grid = (plan.row_blocks, plan.num_splits, shape.batch)
    head = (shape.batch, shape.query_tokens, shape.num_heads)

    def run() -> tuple[Tensor, Tensor]:
        out, lse = results(inputs, plan.num_splits)
        with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
            split_kv_decode[grid](**arguments, **options, out_ptr=out, lse_ptr=lse)
            if plan.num_splits > 1:
                out, lse = merge(out, lse, inputs.q_latent.dtype)
        return out.view(*head, LATENT_DIM), lse.view(*head)

    return run


def merge(partial: Tensor, partial_lse: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Stage 2: [batch, splits, rows, 512] and [batch, splits, rows] -> [batch, rows, 512] in `dtype`, [batch, rows].

    A split with an lse of -inf counts for nothing, whatever its values.
    """
    batch, _, rows = partial_lse.shape
    out, lse = partial.new_empty(batch, rows, LATENT_DIM, dtype=dtype), partial_lse.new_empty(batch, rows)
    grid = (rows, cdiv(LATENT_DIM, _MERGE_COLUMNS), batch)
    tensors = {"partial_ptr": partial, "partial_lse_ptr": partial_lse, "out_ptr": out, "lse_ptr": lse}
    merge_splits[grid](**tensors, **merge_arguments(partial_lse))
    return out, lse
