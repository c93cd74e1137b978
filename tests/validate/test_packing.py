"""Records: bytes as planned, values as close as the format allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.cache import CacheTensor, PerToken  # noqa: E402
from kvplan.errors import Unsupported  # noqa: E402
from kvplan.validate.packing import LATENT_DTYPES, POISON, Record, latent_record  # noqa: E402

ROUNDING = {"bf16": 2**-9, "fp8": 2**-4, "fp8_ds_mla": 2**-4}
"""Half a unit in the last place, as a share of the value."""


def values(seed: int, tokens: int = 5) -> torch.Tensor:
    return torch.randn(2, tokens, 576, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kv_dtype", LATENT_DTYPES)
def test_a_packed_record_has_the_planned_bytes(kv_dtype: str) -> None:
    record = latent_record(kv_dtype)
    assert record.pack(values(0)).shape == (2, 5, record.planned_bytes)


def test_published_record_sizes() -> None:
    """1,152 and 656 bytes a token: FlashMLA README."""
    assert [latent_record(d).planned_bytes for d in LATENT_DTYPES] == [1152, 576, 656]


@given(seed=st.integers(0, 1000))
@pytest.mark.parametrize("kv_dtype", LATENT_DTYPES)
def test_values_come_back_within_the_rounding_of_the_format(kv_dtype: str, seed: int) -> None:
    record, given_values = latent_record(kv_dtype), values(seed)
    back = record.unpack(record.pack(given_values)).float()
    smallest = 2**-9 if kv_dtype != "bf16" else 0
    assert ((back - given_values).abs() <= given_values.abs() * (ROUNDING[kv_dtype] + 2**-8) + smallest).all()


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
def test_packing_what_was_unpacked_changes_nothing(kv_dtype: str) -> None:
    record = latent_record(kv_dtype)
    packed = record.pack(values(1))
    assert torch.equal(record.pack(record.unpack(packed)), packed)


def test_the_layout_of_fp8_ds_mla_is_codes_scales_rotary() -> None:
    packed = latent_record("fp8_ds_mla").pack(torch.cat([torch.full((1, 512), 2.0), torch.full((1, 64), 3.0)], -1))[0]
    assert packed[:512].view(torch.float8_e4m3fn).float().tolist() == [448.0] * 512
    assert packed[512:528].view(torch.float32).tolist() == pytest.approx([2 / 448] * 4)
    assert packed[528:].view(torch.bfloat16).float().tolist() == [3.0] * 64


def test_groups_of_fp8_ds_mla_have_scales_of_their_own() -> None:
    """A group of tiny values keeps its precision beside a group of huge ones."""
    latent = torch.cat([torch.full((1, 128), 1e-3), torch.full((1, 128), 1e3), torch.zeros(1, 256 + 64)], -1)
    record = latent_record("fp8_ds_mla")
    assert torch.allclose(record.unpack(record.pack(latent)).float(), latent, rtol=2**-8)


def test_fp8_saturates_instead_of_overflowing() -> None:
    record = latent_record("fp8")
    assert record.unpack(record.pack(torch.full((1, 576), 1e9))).max() == 448


@pytest.mark.parametrize("kv_dtype", LATENT_DTYPES)
def test_poison_reads_back_as_nan(kv_dtype: str) -> None:
    record = latent_record(kv_dtype)
    assert record.unpack(torch.full((1, record.planned_bytes), POISON, dtype=torch.uint8)).isnan().all()


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8", "fp8_ds_mla"])
def test_bf16_is_read_where_it_lies_and_fp8_is_not(kv_dtype: str) -> None:
    record = latent_record(kv_dtype)
    packed = record.pack(values(2))
    assert record.is_stored_in_bf16 == (record.unpack(packed).data_ptr() == packed.data_ptr())


def test_a_format_that_kvplan_cannot_write_is_refused() -> None:
    record = Record((CacheTensor("k", 1, 64, PerToken()),), "q8_0")
    with pytest.raises(Unsupported, match="q8_0"):
        record.pack(torch.zeros(1, 64))
