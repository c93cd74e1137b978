"""The Triton kernel as a backend: what it refuses, and its numbers, tested in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")
pytest.importorskip("triton", reason="the extra `validate` is not installed")

from kvplan.errors import BadInput, UnknownName, Unsupported  # noqa: E402
from kvplan.validate.kernels import Problem, triton  # noqa: E402
from kvplan.validate.kernels.triton_mla.launch import DecodeInputs  # noqa: E402
from kvplan.validate.kernels.triton_mla.views import cache_views  # noqa: E402
from kvplan.validate.packing import latent_record  # noqa: E402
from kvplan.validate.paged import Extent, PagedCache  # noqa: E402

NUMERICS = Path(__file__).with_name("triton_numerics.py")


def run_numerics(device: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The numerics on a device; triton decides on import whether it interprets."""
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(NUMERICS)],
        env=os.environ | {"TRITON_NUMERICS_ON": device, "PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_kernel_agrees_with_float64_under_the_interpreter() -> None:
    done = run_numerics("cpu", TRITON_INTERPRET="1", OMP_NUM_THREADS="1")  # numpy's products are small
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_kernel_agrees_with_float64_on_the_gpu() -> None:
    done = run_numerics("cuda", TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stdout


def inputs(**changes: Any) -> dict[str, Any]:
    """A step of two sessions that fits together, with changes."""
    return {
        "q_latent": torch.zeros(2, 1, 16, 512, dtype=torch.bfloat16),
        "q_rope": torch.zeros(2, 1, 16, 64, dtype=torch.bfloat16),
        "cache": torch.zeros(8, 64, 576, dtype=torch.bfloat16),
        "seq_lens": torch.tensor([100, 7], dtype=torch.int32),
        "block_table": torch.zeros(2, 4, dtype=torch.int32),
        "softmax_scale": 192**-0.5,
        "kv_dtype": "bf16",
    } | changes


def test_the_shape_counts_the_room_of_the_cache() -> None:
    paged = DecodeInputs(**inputs()).shape
    assert (paged.batch, paged.rows, paged.max_seq_len_tokens, paged.block_size) == (2, 16, 256, 64)
    contiguous = DecodeInputs(**inputs(block_table=None, cache=torch.zeros(2, 100, 576, dtype=torch.bfloat16))).shape
    assert (contiguous.max_seq_len_tokens, contiguous.block_size) == (100, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q_rope": torch.zeros(2, 1, 16, 32, dtype=torch.bfloat16)}, "512] and 64"),
        ({"q_rope": torch.zeros(2, 1, 16, 64)}, "both bf16, fp16 or fp32"),
        ({"kv_dtype": "fp16"}, "bf16 queries against a fp16 cache"),
        ({"seq_lens": torch.tensor([100, 7])}, r"seq_lens is int32 \[2\], not torch.int64"),
        ({"block_table": torch.zeros(3, 4, dtype=torch.int32)}, r"block_table is int32 \[2, blocks\]"),
        ({"block_table": None}, "8, ..."),
        ({"cache": torch.zeros(8, 48, 576, dtype=torch.bfloat16)}, "powers of two from 16 up"),
        ({"softmax_scale": 0.0}, "must be positive"),
    ],
)
def test_tensors_that_do_not_fit_together_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        DecodeInputs(**inputs(**changes))


@pytest.mark.parametrize(("kv_dtype", "entry_bytes"), [("bf16", 1152), ("fp8", 576), ("fp8_ds_mla", 656)])
def test_views_are_the_packed_record(kv_dtype: str, entry_bytes: int) -> None:
    record = latent_record(kv_dtype)
    values = torch.randn(2, 16, 576, generator=torch.Generator().manual_seed(0))
    packed = record.pack(values)
    views = cache_views(packed, kv_dtype)
    latent = views.latent.float()
    if views.scale is not None:
        latent = (latent.unflatten(-1, (4, 128)) * views.scale[..., None]).flatten(-2)
    assert packed.shape[-1] == record.planned_bytes == entry_bytes
    assert torch.equal(torch.cat([latent.bfloat16(), views.rope.bfloat16()], -1), record.unpack(packed).flatten(0, 1))


@pytest.mark.parametrize(("kv_dtype", "width"), [("bf16", 656), ("fp8_ds_mla", 576)])
def test_an_entry_of_another_size_is_refused(kv_dtype: str, width: int) -> None:
    with pytest.raises(BadInput, match=rf"contiguous \[blocks, slots, .* not \(2, 16, {width}\)"):
        cache_views(torch.zeros(2, 16, width, dtype=torch.uint8), kv_dtype)


def test_a_format_that_it_cannot_read_is_refused() -> None:
    with pytest.raises(Unsupported, match="fp8_e5m2"):
        cache_views(torch.zeros(2, 16, 576, dtype=torch.uint8), "fp8_e5m2")
    with pytest.raises(UnknownName, match="bf17"):
        cache_views(torch.zeros(2, 16, 576, dtype=torch.uint8), "bf17")


def test_without_a_gpu_it_says_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert triton.BACKEND.available("cuda:0") == "no CUDA device"
    assert triton.BACKEND.missing() == "triton compiles for CUDA, not for cpu"
    with pytest.raises(Unsupported, match="the Triton MLA kernel cannot run: triton compiles for CUDA, not for cpu"):
        triton.BACKEND.decode(**inputs())


@pytest.mark.parametrize(
    ("hip", "capability", "reason"),
    [
        (None, (9, 0), None),
        (None, (7, 5), "needs compute capability 8.0"),
        ("6.4", (9, 4), "ROCm"),
    ],
)
def test_which_devices_it_takes(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, capability: tuple[int, int], reason: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    found = triton.BACKEND.available("cuda")
    assert found is None if reason is None else reason in (found or "")


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "find_spec", lambda name: None)
    assert "pip install 'kvplan[validate]'" in (triton.BACKEND.missing() or "")


def problem(lengths: tuple[int, ...], block_size: int | None, kv_dtype: str = "bf16") -> Problem:
    cache = PagedCache.allocate(latent_record(kv_dtype), Extent(len(lengths), max(lengths), block_size))
    cache = replace(cache, lengths=torch.tensor(lengths, dtype=torch.int32))
    query = torch.zeros(len(lengths), 1, 16, 576, dtype=torch.bfloat16)
    return Problem(query=query, cache=cache, softmax_scale=192**-0.5)


def test_a_problem_it_cannot_run_is_refused_in_one_line() -> None:
    assert triton.BACKEND.refusal(problem((100, 100), 64)) is None
    assert triton.BACKEND.refusal(problem((100, 100), None)) is None
    assert "powers of two" in (triton.BACKEND.refusal(problem((100, 100), 24)) or "")


def test_scratch_is_output_and_partial_results() -> None:
    """One session of 1,024 tokens is cut in two; 200 of them are not cut."""
    rows_bytes = 16 * (512 * 2 + 4)
    assert triton.BACKEND.scratch_bytes(problem((1024,), 64)) == rows_bytes + 16 * 2 * 513 * 4
    assert triton.BACKEND.scratch_bytes(problem((64,) * 200, 64)) == 200 * rows_bytes
