"""The torch forms against the float64 reference on the same, dequantised cache."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.validate.gauge import peak_bytes  # noqa: E402
from kvplan.validate.kernels import (  # noqa: E402
    Problem,
    torch_bmm,
    torch_mm,
    torch_sdpa,
)
from kvplan.validate.kernels._torch import TorchForm  # noqa: E402
from kvplan.validate.packing import LATENT_DTYPES, latent_record  # noqa: E402
from kvplan.validate.paged import Extent, PagedCache  # noqa: E402
from kvplan.validate.reference import latent_attention  # noqa: E402

FUSED = torch_sdpa.BACKEND
BACKENDS = (torch_bmm.BACKEND, torch_mm.BACKEND, FUSED)
SCALE = 192**-0.5
BATCH = 2


def problem(
    tokens: int, *, heads: int = 16, query_tokens: int = 1, block_size: int | None = None, kv_dtype: str = "bf16"
) -> Problem:
    cache = PagedCache.allocate(latent_record(kv_dtype), Extent(BATCH, tokens + 3, block_size))
    generator = torch.Generator().manual_seed(tokens + heads)
    cache.append(torch.randn(BATCH, tokens, 576, generator=generator))
    query = torch.randn(BATCH, query_tokens, heads, 576, generator=generator).to(torch.bfloat16)
    return Problem(query=query, cache=cache, softmax_scale=SCALE)


def error(form: TorchForm, case: Problem) -> float:
    truth, _ = latent_attention(case.query, case.cache.unpack(), case.cache.lengths, SCALE, 512)
    return float((form.prepare(case)() - truth).abs().max() / truth.abs().max())


@pytest.mark.parametrize("form", BACKENDS, ids=lambda f: f.name)
@pytest.mark.parametrize("tokens", [2, 63, 64, 200])
@pytest.mark.parametrize("block_size", [None, 64])
def test_bf16_rounding_is_all_that_separates_a_form_from_float64(
    form: TorchForm, tokens: int, block_size: int | None
) -> None:
    assert error(form, problem(tokens, block_size=block_size)) <= 2e-2


@pytest.mark.parametrize("form", BACKENDS, ids=lambda f: f.name)
@pytest.mark.parametrize("kv_dtype", LATENT_DTYPES)
@pytest.mark.parametrize("query_tokens", [1, 2])
def test_every_cache_dtype_and_speculative_queries(form: TorchForm, kv_dtype: str, query_tokens: int) -> None:
    assert error(form, problem(130, kv_dtype=kv_dtype, query_tokens=query_tokens, block_size=64)) <= 2e-2


@pytest.mark.parametrize("form", BACKENDS, ids=lambda f: f.name)
@pytest.mark.parametrize("heads", [8, 64, 128])
def test_every_head_count(form: TorchForm, heads: int) -> None:
    assert error(form, problem(100, heads=heads)) <= 2e-2


@pytest.mark.parametrize("form", BACKENDS, ids=lambda f: f.name)
def test_a_kernel_that_reads_the_wrong_scale_fails(form: TorchForm) -> None:
    case = problem(100)
    wrong = Problem(query=case.query, cache=case.cache, softmax_scale=576**-0.5)
    truth, _ = latent_attention(case.query, case.cache.unpack(), case.cache.lengths, SCALE, 512)
    assert (form.prepare(wrong)() - truth).abs().max() / truth.abs().max() > 0.1


def test_sessions_of_unequal_length_are_refused() -> None:
    cache = PagedCache.allocate(latent_record("bf16"), Extent(2, 64))
    cache.append_packed(cache.record.pack(torch.randn(2, 9, 576)), torch.tensor([9, 4], dtype=torch.int32))
    case = Problem(query=torch.zeros(2, 1, 16, 576, dtype=torch.bfloat16), cache=cache, softmax_scale=SCALE)
    assert FUSED.refusal(case) == "sessions differ in length"
    assert FUSED.refusal(problem(9)) is None


@pytest.mark.parametrize("kv_dtype", LATENT_DTYPES)
@pytest.mark.parametrize("block_size", [None, 64])
@pytest.mark.parametrize("tokens", [200, 1500])
def test_scratch_is_predicted(kv_dtype: str, block_size: int | None, tokens: int) -> None:
    case = problem(tokens, kv_dtype=kv_dtype, block_size=block_size)
    launch = FUSED.prepare(case)
    launch()
    predicted_bytes = FUSED.scratch_bytes(case)
    assert predicted_bytes is not None
    assert abs(peak_bytes(launch, "cpu") - predicted_bytes) <= predicted_bytes / 100


def test_scratch_that_depends_on_the_processor_is_not_predicted() -> None:
    assert FUSED.scratch_bytes(problem(100, heads=64)) is None
    assert BACKENDS[0].scratch_bytes(problem(100)) is None
