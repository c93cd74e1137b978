"""The Triton kernel against float64, on the device that TRITON_NUMERICS_ON names (cpu: under Triton's interpreter).

Not collected by name: triton decides on import whether it interprets, so `test_triton.py` runs this file in a process
of its own. Every cache is paged and shuffled unless a test says otherwise, its unwritten slots hold NaN, and the
block table names no block behind a session's last one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from kvplan.validate.kernels import Problem, triton
from kvplan.validate.kernels.triton_mla.configs import TILES, DecodePlan, Tile, choose_tile
from kvplan.validate.kernels.triton_mla.launch import DecodeInputs, merge, prepare
from kvplan.validate.packing import E4M3, latent_record
from kvplan.validate.paged import Extent, PagedCache
from kvplan.validate.reference import latent_attention, merge_by_log_sum_exp

DEVICE = os.environ["TRITON_NUMERICS_ON"]
EXACT = DEVICE == "cpu"
"""The interpreter multiplies in fp32, so a tile for bf16 can be held to fp32's bound; a GPU runs it in bf16."""
QUERY_DTYPE, BOUND = (torch.float32, 1e-5) if EXACT else (torch.bfloat16, 2e-2)
SCALE = 192**-0.5
RAGGED = (1, 130, 0, 321)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A step, and how it is cut."""

    heads: int = 16
    query_tokens: int = 1
    lengths: tuple[int, ...] = RAGGED
    kv_dtype: str = "bf16"
    block_size: int | None = 64
    num_splits: int = 1
    tile: Tile | None = None

    def cache(self) -> PagedCache:
        """Blocks handed out in a shuffled order as sessions grow by different amounts."""
        extent = Extent(len(self.lengths), max(self.lengths) + 40, self.block_size)
        cache = PagedCache.allocate(latent_record(self.kv_dtype), extent)
        counts = torch.tensor(self.lengths, dtype=torch.int32)
        values = torch.randn(len(counts), max(self.lengths), 576, generator=torch.Generator().manual_seed(1))
        packed = cache.record.pack(values)
        cache.append_packed(packed, counts // 2)
        cache.append_packed(packed.flip(1), counts - counts // 2)
        return replace(
            cache, blocks=cache.blocks.to(DEVICE), block_table=cache.block_table.to(DEVICE), lengths=counts.to(DEVICE)
        )

    def query(self, dtype: torch.dtype = QUERY_DTYPE) -> Tensor:
        """[batch, query tokens, heads, 576]."""
        shape = (len(self.lengths), self.query_tokens, self.heads, 576)
        return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(DEVICE, dtype)

    def inputs(self, cache: PagedCache, query: Tensor) -> DecodeInputs:
        """The step for the kernel."""
        return DecodeInputs(
            q_latent=query[..., :512],
            q_rope=query[..., 512:],
            cache=cache.blocks,
            seq_lens=cache.lengths,
            block_table=None if self.block_size is None else cache.block_table,
            softmax_scale=SCALE,
            kv_dtype=self.kv_dtype,
        )

    def run(self, cache: PagedCache, query: Tensor) -> tuple[Tensor, Tensor]:
        """The kernel with the case's tile, or with the one that bf16 queries would get."""
        inputs = self.inputs(cache, query)
        shape = replace(inputs.shape, query_dtype="bf16")
        tile = self.tile or choose_tile(shape, triton.properties(query.device))
        row_blocks = -(-shape.rows // tile.block_h)
        return prepare(inputs, DecodePlan(tile, row_blocks, self.num_splits, ctas_per_sm=1, scratch_bytes=0))()


def dequantised(cache: PagedCache) -> Tensor:
    """Entries in token order [batch, tokens, 576], scales applied in float64."""
    entries = cache.reader()()
    if cache.record.kv_dtype != "fp8_ds_mla":
        return cache.record.unpack(entries).double()
    codes, scales, rope = entries.split([512, 16, 128], -1)
    groups = codes.view(E4M3).double().unflatten(-1, (4, 128)) * scales.contiguous().view(torch.float32)[..., None]
    return torch.cat([groups.flatten(-2), rope.contiguous().view(torch.bfloat16).double()], -1)


def truth(cache: PagedCache, query: Tensor) -> tuple[Tensor, Tensor]:
    return latent_attention(query, dequantised(cache), cache.lengths, SCALE, 512)


def assert_right(case: Case, bound: float = BOUND, dtype: torch.dtype = QUERY_DTYPE) -> None:
    cache, query = case.cache(), case.query(dtype)
    for found, wanted in zip(case.run(cache, query), truth(cache, query), strict=True):
        torch.testing.assert_close(found.double(), wanted, atol=bound, rtol=0)


@pytest.mark.parametrize("heads", [8, 16, 64, 128])
@pytest.mark.parametrize("query_tokens", [1, 2])
def test_heads_and_query_tokens(heads: int, query_tokens: int) -> None:
    """With one token, none, and lengths that fill no tile, side by side."""
    assert_right(Case(heads=heads, query_tokens=query_tokens))


@pytest.mark.parametrize("heads", [16, 64])
def test_a_contiguous_cache(heads: int) -> None:
    """Where a tile behind one session's last token lies in the next session."""
    assert_right(Case(heads=heads, query_tokens=2, block_size=None))


@pytest.mark.parametrize(
    ("kv_dtype", "tile"),
    sorted(
        {
            ("bf16" if kind == "16-bit" else kind, tile)
            for family in TILES.values()
            for kind, tiles in family.items()
            for tile in tiles
            if kind != "fp32" and EXACT
        },
        key=repr,
    ),
    ids=str,
)
def test_every_tile(kv_dtype: str, tile: Tile) -> None:
    """48 rows are no multiple of most blocks of rows."""
    assert_right(Case(heads=24, query_tokens=2, lengths=(65, 130), kv_dtype=kv_dtype, tile=tile))


@pytest.mark.parametrize("kv_dtype", ["fp8", "fp8_ds_mla"])
@pytest.mark.parametrize(("heads", "block_size"), [(8, None), (64, 64)])
def test_quantised_caches_equal_the_dequantised_one(kv_dtype: str, heads: int, block_size: int | None) -> None:
    assert_right(Case(kv_dtype=kv_dtype, heads=heads, block_size=block_size, query_tokens=2))


@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize(("heads", "kv_dtype"), [(16, "fp8_ds_mla"), (64, "bf16")])
def test_blocks_smaller_and_larger_than_a_tile(block_size: int, heads: int, kv_dtype: str) -> None:
    assert_right(Case(block_size=block_size, heads=heads, kv_dtype=kv_dtype, lengths=(47, 200)))


@pytest.mark.parametrize(("num_splits", "heads"), [(2, 2), (3, 2), (40, 2), (2, 40)])
def test_splits_merge_to_the_whole(num_splits: int, heads: int) -> None:
    """Also where the shorter sessions have fewer splits than the longest, and one has none."""
    assert_right(Case(num_splits=num_splits, heads=heads, lengths=(1, 1100, 0, 513)))


def test_the_merge_of_more_splits_than_it_holds_at_once() -> None:
    """32 at a time, with lse in rising and falling order, and empty splits whose values are NaN."""
    generator = torch.Generator().manual_seed(3)
    partial = torch.randn(1, 70, 2, 512, generator=generator)
    lse = torch.linspace(-20, 20, 70)[None, :, None] * torch.tensor([1.0, -1.0]) + torch.rand(
        1, 70, 2, generator=generator
    )
    wanted, wanted_lse = merge_by_log_sum_exp(partial.double().transpose(0, 1), lse.double().transpose(0, 1))
    partial = torch.cat([partial, torch.full((1, 5, 2, 512), torch.nan)], 1)
    lse = torch.cat([lse, torch.full((1, 5, 2), -torch.inf)], 1)
    out, out_lse = merge(partial.to(DEVICE), lse.to(DEVICE), torch.float32)
    torch.testing.assert_close(out.double().cpu(), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(out_lse.double().cpu(), wanted_lse, atol=1e-5, rtol=0)


@pytest.mark.parametrize("length", [0, 1, 2, 63, 64, 65, 127, 128, 129])
def test_every_length_around_a_tile(length: int) -> None:
    """With two query tokens, of which the first of a session of one token sees nothing."""
    assert_right(Case(lengths=(length,), heads=40, query_tokens=2))


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8", "fp8_ds_mla"])
def test_bf16_queries_differ_by_bf16_rounding(kv_dtype: str) -> None:
    assert_right(Case(kv_dtype=kv_dtype, lengths=(1, 130, 321)), bound=2e-2, dtype=torch.bfloat16)


@pytest.mark.parametrize("num_splits", [1, 2])
def test_what_a_session_without_tokens_gets(num_splits: int) -> None:
    case = Case(lengths=(0, 5), heads=2, num_splits=num_splits)
    out, lse = case.run(case.cache(), case.query())
    assert (out[0] == 0).all()
    assert (lse[0] == -torch.inf).all()
    assert lse[1].isfinite().all()


@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize("position", [3, 600])
def test_a_nan_that_was_written_is_not_hidden(num_splits: int, position: int) -> None:
    """In the loop's tiles and in the last one, in one split or in another."""
    case = Case(lengths=(601, 601), heads=2, block_size=None, num_splits=num_splits)
    cache = case.cache()
    cache.blocks[0, position] = 0xFF
    out, lse = case.run(cache, case.query())
    assert out[0].isnan().all()
    assert lse[0].isnan().all()
    assert out[1].isfinite().all()


def test_another_scale_is_another_result() -> None:
    """1/sqrt(576) is the mistake to make, and the comparison sees it."""
    case = Case()
    cache, query = case.cache(), case.query()
    wrong, _ = latent_attention(query, dequantised(cache), cache.lengths, 576**-0.5, 512)
    assert float((case.run(cache, query)[0].double() - wrong).abs().max()) > 100 * BOUND


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_decode_takes_elements_and_answers_in_the_type_of_the_queries(dtype: torch.dtype) -> None:
    """A cache of typed elements, contiguous, through the backend, which plans for itself."""
    kv_dtype = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    case = Case(lengths=(130, 70), heads=8)
    entries, query = torch.randn(2, 140, 576, device=DEVICE).to(dtype), case.query(dtype)
    lengths = torch.tensor(case.lengths, dtype=torch.int32, device=DEVICE)
    out, lse = triton.BACKEND.decode(
        query[..., :512], query[..., 512:], entries, lengths, None, softmax_scale=SCALE, kv_dtype=kv_dtype
    )
    wanted, wanted_lse = latent_attention(query, entries, lengths, SCALE, 512)
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(out.double(), wanted, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=0)
    torch.testing.assert_close(lse.double(), wanted_lse, atol=1e-5 if EXACT else 2e-2, rtol=0)


def test_one_scale_of_an_fp8_cache_counts_in_scores_and_values() -> None:
    case = Case(kv_dtype="fp8", lengths=(130, 70))
    cache, query = case.cache(), case.query()
    found, _ = prepare(replace(case.inputs(cache, query), kv_scale=0.25), _plan_of(case, cache, query))()
    wanted, _ = latent_attention(query, dequantised(cache) * 0.25, cache.lengths, SCALE, 512)
    torch.testing.assert_close(found.double(), wanted, atol=BOUND, rtol=0)


def _plan_of(case: Case, cache: PagedCache, query: Tensor) -> DecodePlan:
    return triton.BACKEND.plan(case.inputs(cache, query).shape, triton.properties(query.device))


@pytest.mark.parametrize("block_size", [64, None], ids=["paged", "contiguous"])
def test_as_a_backend_of_validate(block_size: int | None) -> None:
    case = Case(block_size=block_size, heads=4, lengths=(1100, 70))
    cache, query = case.cache(), case.query()
    problem = Problem(query=query, cache=cache, softmax_scale=SCALE)
    assert triton.BACKEND.missing() is None
    assert triton.BACKEND.refusal(problem) is None
    torch.testing.assert_close(triton.BACKEND.prepare(problem)().double(), truth(cache, query)[0], atol=BOUND, rtol=0)
