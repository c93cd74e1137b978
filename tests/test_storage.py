"""Element formats turn into the record sizes that are published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.errors import UnknownName, Unsupported
from kvplan.storage import FORMATS, Storage, kv_format

MLA = MultiHeadLatentAttention(
    num_attention_heads=128, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
)
HEADS = GroupedQueryAttention(num_attention_heads=8, num_key_value_heads=1, head_dim=128)


def slot_bytes(attention: object, fmt: str) -> int:
    return sum(t.bytes_per_slot(kv_format(fmt)) for t in attention.tensors())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fmt", "expected"),
    [
        ("bf16", 1152),  # DeepSeek-V2, arXiv 2405.04434
        ("fp8", 576),  # vLLM kv dtype fp8
        ("fp8_ds_mla", 656),  # FlashMLA: 512 + 16 + 128
        ("nvfp4_ds_mla", 352),  # 256 + 32 + 64
        ("nvfp4", 324),  # SGLang fp4: 288 + 36
        ("q8_0", 612),  # GGML 34 / 32 B
        ("6bit", 432),  # the average width of DeepSeek-V2's published comparison
    ],
)
def test_mla_record(fmt: str, expected: int) -> None:
    """One token of one MLA layer."""
    assert slot_bytes(MLA, fmt) == expected


@pytest.mark.parametrize(
    ("fmt", "expected"),
    [
        ("fp32", 1024), ("bf16", 512), ("fp16", 512), ("fp8", 256), ("fp8_e5m2", 256), ("int8", 256), ("int4", 128),
        ("nvfp4", 144), ("int8_per_token_head", 264), ("fp8_per_token_head", 264), ("int4_per_token_head", 136),
        ("mxfp8", 264), ("q8_0", 272), ("q5_1", 192), ("q5_0", 176), ("q4_1", 160), ("q4_0", 144), ("iq4_nl", 144),
    ],
)  # fmt: skip
def test_one_kv_head_of_128(fmt: str, expected: int) -> None:
    """K and V of one head (vLLM and GGML block sizes)."""
    assert slot_bytes(HEADS, fmt) == expected


def test_deepseek_v4_record_is_584_bytes() -> None:
    """448 fp8 + 7 scales + 1 pad + 64 bf16."""
    window = CompressedAttention(num_attention_heads=64, head_dim=512, qk_rope_head_dim=64, sliding_window=128)

    assert slot_bytes(window, "fp8_ds_mla") == 584
    assert slot_bytes(window, "bf16") == 1024


def test_indexer_key_is_132_bytes_whatever_the_flag() -> None:
    """128 fp8 elements and one fp32 scale; states keep their own precision too."""
    assert {kv_format(f).of("index_k").vector_bytes(128) for f in ("bf16", "fp8", "fp8_ds_mla")} == {132}
    assert kv_format("fp8").of("recurrent_state").vector_bytes(100) == 400
    assert kv_format("fp8").of("conv_state").vector_bytes(100) == 200


def test_a_format_refuses_what_it_has_no_record_for() -> None:
    """A latent record cannot hold K and V heads, nor a per-head scale a latent."""
    with pytest.raises(Unsupported, match="fp8_ds_mla"):
        slot_bytes(HEADS, "fp8_ds_mla")
    with pytest.raises(Unsupported, match="int8_per_token_head"):
        slot_bytes(MLA, "int8_per_token_head")


@pytest.mark.parametrize(("name", "near"), [("fp8_ds_mal", "fp8_ds_mla"), ("bf61", "bf16"), ("0bit", "6bit")])
def test_an_unknown_dtype_names_its_neighbour(name: str, near: str) -> None:
    """A typo is answered with the nearest name."""
    with pytest.raises(UnknownName, match=near):
        kv_format(name)


@pytest.mark.parametrize("alias", ["bfloat16", "BF16", "fp8_e4m3", "float16", "f16"])
def test_common_spellings(alias: str) -> None:
    """torch's, vLLM's and llama.cpp's spellings mean the same format."""
    assert kv_format(alias) in FORMATS.values()


@given(st.integers(1, 4096), st.integers(1, 32), st.integers(0, 64), st.integers(1, 256), st.integers(1, 64))
def test_a_vector_takes_at_least_its_bits(dim: int, bits: int, scale: int, group: int, align: int) -> None:
    """Scales, pad and alignment only add."""
    storage = Storage("x", bits, scale_bits=scale, group=group, align_bytes=align)

    assert storage.vector_bytes(dim) * 8 >= dim * bits
    assert storage.vector_bytes(dim) % align == 0
    assert storage.vector_bytes(dim) <= storage.vector_bytes(dim + 1)
