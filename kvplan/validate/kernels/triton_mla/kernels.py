# mypy: ignore-errors
# ruff: noqa: N803, PLR0917, RET505
"""Device code of absorbed MLA decode: each split of the context attends (stage 1), the splits are merged (stage 2).

A latent entry of 512 elements is key and value at once, its rotary part of 64 is key only; so a tile of `BLOCK_N`
entries is loaded once and used twice. Query tokens and heads are rows of one matrix: row = token x heads + head, and a
row sees the entries up to its own token. Softmax is online, in base 2, with the scale and log2(e) in one factor.

Three things here are written for what the compiler makes of them (Triton 3.7.1, sm_90, read from its assembly):

- The latent's and the rotary part's scores are scaled before they are added, and they pass through an `if`. A product
  that feeds another one gets all warps along its rows; with 64 rows the second group of four warps would then repeat
  the work of the first (72 instead of 36 instructions a warp). The `if` is where causality masks the last tile.
- The block number of the next tile is loaded one tile ahead, outside the chain of loads; inside, it would use up one
  of the pipeline's stages.
- A tile that is copied by descriptor is full, and needs no mask. The rest of the context, at most one tile, is loaded
  after the loop, and its unwritten entries are zeroed: a NaN in them would survive a probability of zero.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

LATENT_DIM = tl.constexpr(512)
ROPE_DIM = tl.constexpr(64)
SCALE_GROUP = tl.constexpr(128)
SCALES = tl.constexpr(4)
LN_2 = tl.constexpr(math.log(2))
LOG2_E = tl.constexpr(1 / math.log(2))


@triton.jit
def block_of(table_ptr, start, end, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Block numbers of the tile at `start`: one where it lies inside a block, else one for each entry."""
    if PAGE == 0:
        return 0
    elif PAGE % BLOCK_N == 0:
        return tl.load(table_ptr + start // PAGE, mask=start < end, other=0)
    else:
        entry = start + tl.arange(0, BLOCK_N)
        return tl.load(table_ptr + entry // PAGE, mask=entry < end, other=0)


@triton.jit
def slots_of(block, start, first_slot, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Slots of a tile's entries as (first, offsets of the entries): the first is 0 where they are scattered."""
    if PAGE == 0:
        return first_slot + start, tl.arange(0, BLOCK_N)
    elif PAGE % BLOCK_N == 0:
        return block * PAGE + start % PAGE, tl.arange(0, BLOCK_N)
    else:
        return 0, block.to(tl.int64) * PAGE + (start + tl.arange(0, BLOCK_N)) % PAGE


@triton.jit
def load_rows(ptr, slot, offsets, valid, STRIDE: tl.constexpr, WIDTH: tl.constexpr):
    """[offsets, WIDTH] elements; zeros where not valid."""
    columns = tl.arange(0, WIDTH)
    rows = ptr + tl.cast(slot, tl.int64) * STRIDE + offsets[:, None] * STRIDE
    return tl.load(rows + columns[None, :], mask=valid[:, None], other=0.0)


@triton.jit
def load_tile(
    latent_ptr, rope_ptr, scale_ptr, slot, offsets, valid,
    LATENT_STRIDE: tl.constexpr, ROPE_STRIDE: tl.constexpr, SCALE_STRIDE: tl.constexpr,
    BLOCK_N: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Latent [BLOCK_N, 512] and rotary part [BLOCK_N, 64] in the type of the products.

    fp8 goes through fp32: e4m3 to bf16 at once becomes F2F, an instruction of a quarter the rate or less.
    """
    latent = load_rows(latent_ptr, slot, offsets, valid, LATENT_STRIDE, LATENT_DIM)
    rope = load_rows(rope_ptr, slot, offsets, valid, ROPE_STRIDE, ROPE_DIM)
    if latent.dtype.primitive_bitwidth == 8:
        latent = latent.to(tl.float32)
    if rope.dtype.primitive_bitwidth == 8:
        rope = rope.to(tl.float32)
    if SCALE_STRIDE > 0:
        scale = load_rows(scale_ptr, slot, offsets, valid, SCALE_STRIDE, SCALES)
        groups = tl.reshape(latent, [BLOCK_N, SCALES, SCALE_GROUP]) * scale[:, :, None]
        latent = tl.reshape(groups, [BLOCK_N, LATENT_DIM])
    return latent.to(DOT), rope.to(DOT)


@triton.jit
def attend(
    accumulator, row_max, row_sum, q_latent, q_rope, latent, rope,
    start, end, seen_by_all, first_row, heads, score_scale,
):  # fmt: skip
    """One tile's step of the online softmax. The first query token sees the entries before `seen_by_all`, the next one
    more, and so on; none sees any from `end` on."""
    scores = tl.dot(q_latent, tl.trans(latent), input_precision="ieee") * score_scale
    scores += tl.dot(q_rope, tl.trans(rope), input_precision="ieee") * score_scale
    if start + latent.shape[0] > tl.minimum(seen_by_all, end):
        entries = start + tl.arange(0, latent.shape[0])
        row_end = tl.minimum(seen_by_all + (first_row + tl.arange(0, q_latent.shape[0])) // heads, end)
        scores = tl.where(entries[None, :] < row_end[:, None], scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)
    weights = tl.exp2(scores - finite_max[:, None])
    decay = tl.exp2(row_max - finite_max)
    row_sum = row_sum * decay + tl.sum(weights, 1)
    accumulator = tl.dot(weights.to(latent.dtype), latent, accumulator * decay[:, None], input_precision="ieee")
    return accumulator, new_max, row_sum


@triton.jit
def share_of(length, split, num_splits, MIN_KEYS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The entries [begin, end) of one split: whole tiles, at least MIN_KEYS, so late splits may have none."""
    share = tl.cdiv(tl.maximum(tl.cdiv(length, num_splits), MIN_KEYS), BLOCK_N) * BLOCK_N
    begin = split * share
    return begin, tl.maximum(tl.minimum(begin + share, length), begin)


@triton.jit
def store_split(out_ptr, lse_ptr, out_row, rows, wanted, live, accumulator, row_max, row_sum, value_scale):
    """Normalise, and write [rows, 512] where `wanted` and the natural log-sum-exp [rows] where `live`."""
    is_empty = row_sum == 0.0
    total = tl.where(is_empty, 1.0, row_sum)
    lse = tl.where(is_empty, float("-inf"), (row_max + tl.log2(total)) * LN_2)
    out = out_ptr + out_row * LATENT_DIM + rows[:, None] * LATENT_DIM + tl.arange(0, LATENT_DIM)[None, :]
    result = accumulator * (value_scale / total)[:, None]
    tl.store(out, result.to(out_ptr.dtype.element_ty), mask=wanted[:, None])
    tl.store(lse_ptr + out_row + rows, lse, mask=live)


@triton.jit
def split_kv_decode(
    q_latent_ptr, q_rope_ptr, latent_ptr, rope_ptr, scale_ptr, latent_tiles, rope_tiles, table_ptr, lengths_ptr,
    out_ptr, lse_ptr, score_scale, value_scale, table_stride, num_rows, num_splits,
    QUERY_TOKENS: tl.constexpr, Q_LATENT_STRIDE: tl.constexpr, Q_ROPE_STRIDE: tl.constexpr, PAGE: tl.constexpr,
    LATENT_STRIDE: tl.constexpr, ROPE_STRIDE: tl.constexpr, SCALE_STRIDE: tl.constexpr, DOT: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, TMA: tl.constexpr, MIN_KEYS: tl.constexpr,
):  # fmt: skip
    """Stage 1: program (block of rows, split, session) attends to its share of the session's entries.

    Blocks of rows run fastest, so that programs which read the same tiles run together and share them in L2. Writes
    out [session, split, row, 512] and lse [session, split, row]; with one split that is the result. A split without
    entries writes -inf and leaves its part of out alone. PAGE 0: contiguous, `table_stride` slots a session.
    """
    first_row, split, session = tl.program_id(0) * BLOCK_H, tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths_ptr + session)
    begin, end = share_of(length, split, num_splits, MIN_KEYS, BLOCK_N)
    rows = tl.arange(0, BLOCK_H)
    live = first_row + rows < num_rows
    q_row = session.to(tl.int64) * num_rows + first_row
    q_latent = load_rows(q_latent_ptr, q_row, rows, live, Q_LATENT_STRIDE, LATENT_DIM).to(DOT)
    q_rope = load_rows(q_rope_ptr, q_row, rows, live, Q_ROPE_STRIDE, ROPE_DIM).to(DOT)
    seen_by_all = length - QUERY_TOKENS + 1
    heads = num_rows // QUERY_TOKENS

    accumulator = tl.zeros([BLOCK_H, LATENT_DIM], tl.float32)
    row_max = tl.full([BLOCK_H], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_H], tl.float32)
    first_slot = session * table_stride
    if PAGE > 0:
        table_ptr += first_slot
    block = block_of(table_ptr, begin, end, PAGE, BLOCK_N)
    entries = tl.arange(0, BLOCK_N)
    full_end = begin + (end - begin) // BLOCK_N * BLOCK_N
    loop_end = full_end if TMA else end
    for start in tl.range(begin, loop_end, BLOCK_N, num_stages=STAGES):
        slot, offsets = slots_of(block, start, first_slot, PAGE, BLOCK_N)
        block = block_of(table_ptr, start + BLOCK_N, end, PAGE, BLOCK_N)
        if TMA:
            latent, rope = latent_tiles.load([slot, 0]).to(DOT), rope_tiles.load([slot, 0]).to(DOT)
        else:
            latent, rope = load_tile(
                latent_ptr, rope_ptr, scale_ptr, slot, offsets, entries < end - start,
                LATENT_STRIDE, ROPE_STRIDE, SCALE_STRIDE, BLOCK_N, DOT,
            )  # fmt: skip
        accumulator, row_max, row_sum = attend(
            accumulator, row_max, row_sum, q_latent, q_rope, latent, rope,
            start, end, seen_by_all, first_row, heads, score_scale,
        )  # fmt: skip
    if TMA and full_end < end:
        slot, _ = slots_of(block, full_end, first_slot, PAGE, BLOCK_N)
        written = (entries < end - full_end)[:, None]
        latent = tl.where(written, latent_tiles.load([slot, 0]), 0.0).to(DOT)
        rope = tl.where(written, rope_tiles.load([slot, 0]), 0.0).to(DOT)
        accumulator, row_max, row_sum = attend(
            accumulator, row_max, row_sum, q_latent, q_rope, latent, rope,
            full_end, end, seen_by_all, first_row, heads, score_scale,
        )  # fmt: skip
    out_row = (session.to(tl.int64) * num_splits + split) * num_rows + first_row
    wanted = live & ((begin < end) | (num_splits == 1))
    store_split(out_ptr, lse_ptr, out_row, rows, wanted, live, accumulator, row_max, row_sum, value_scale)


@triton.jit
def merge_splits(
    partial_ptr, partial_lse_ptr, out_ptr, lse_ptr, num_rows, num_splits, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr
):
    """Stage 2: program (row, part of the latent, session) averages the splits, each weighted by exp(its lse)."""
    row = tl.program_id(0)
    session = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    first = session * num_splits * num_rows + row
    splits = tl.arange(0, BLOCK_S)
    accumulator = tl.zeros([BLOCK_D], tl.float32)
    top = float("-inf")
    total = 0.0
    for start in tl.range(0, num_splits, BLOCK_S):
        at = first + (start + splits) * num_rows
        lse = tl.load(partial_lse_ptr + at, mask=start + splits < num_splits, other=float("-inf"))
        has_work = lse != float("-inf")
        values = tl.load(partial_ptr + at[:, None] * LATENT_DIM + columns[None, :], mask=has_work[:, None], other=0.0)
        new_top = tl.maximum(top, tl.max(lse, 0))
        finite_top = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2((lse - finite_top) * LOG2_E)
        decay = tl.exp2((top - finite_top) * LOG2_E)
        total = total * decay + tl.sum(weights, 0)
        accumulator = accumulator * decay + tl.sum(weights[:, None] * values, 0)
        top = new_top

    is_empty = total == 0.0
    divisor = tl.where(is_empty, 1.0, total)
    at = session * num_rows + row
    tl.store(out_ptr + at * LATENT_DIM + columns, (accumulator / divisor).to(out_ptr.dtype.element_ty))
    if tl.program_id(1) == 0:
        tl.store(lse_ptr + at, tl.where(is_empty, float("-inf"), top + tl.log2(divisor) * LN_2))
