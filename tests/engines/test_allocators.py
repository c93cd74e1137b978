"""Deliberately slow allocators, slot by slot, agree with the closed forms on random geometries; and laws of capacity.

vLLM's stands in test_vllm_allocator.py.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.engines import engine
from kvplan.engines._tokens import TokenPool
from kvplan.engines.base import Deployment, Layout
from kvplan.engines.llama_cpp import LlamaCppLayout
from kvplan.engines.transformers import GrowingCache
from kvplan.model import ModelSpec, session_bytes
from kvplan.parallel import Parallelism
from tests.engines.toys import H100, deployment, heads, latent, model

ENGINES = ("sglang", "tensorrt-llm", "llama.cpp", "transformers")


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """Full layers, perhaps with sliding ones; heads, or latents."""
    full, sliding = draw(st.integers(1, 6)), draw(st.integers(0, 6))
    kv = draw(st.sampled_from([1, 2, 4]))
    attention = draw(st.sampled_from(["heads", "latent"]))
    own = latent(8) if attention == "latent" else heads(8, kv, draw(st.sampled_from([32, 64, 128])))
    groups: list[tuple[str, object]] = [(f"0-{full - 1}", own)]
    if sliding and attention == "heads":
        window = draw(st.integers(16, 3000))
        groups.append((f"{full}-{full + sliding - 1}", heads(8, kv, 64, window=window)))
    return model(*groups)  # type: ignore[arg-type]


def layout_of(name: str, spec: ModelSpec, tokens: int, **options: object) -> Layout:
    return engine(name).layout(deployment(spec, tokens, **options))


@given(specs(), st.sampled_from([1, 16, 64]), st.integers(1, 3000), st.integers(10**6, 10**8))
@settings(max_examples=60, deadline=None)
def test_token_pools_page_by_page(spec: ModelSpec, page: int, tokens: int, pool_bytes: int) -> None:
    """Pages are bought one by one, then handed to sessions one by one, until one cannot be served."""
    found = layout_of("sglang", spec, 4096, engine_args={"page_size": page}, max_num_seqs=10**9)
    assert isinstance(found, TokenPool)
    pages, spent = 0, Fraction(0)
    while spent + found.bytes_per_token * page <= pool_bytes:
        spent, pages = spent + found.bytes_per_token * page, pages + 1
    free, window_free, sessions = pages, int(found.window_slots(pool_bytes)) // page, 0
    needed = len(range(0, tokens, page))
    held = len(range(0, min(tokens, found.window_tokens), page)) if found.window_cell_bytes else 0
    while free >= needed and window_free >= held:
        free, window_free, sessions = free - needed, window_free - held, sessions + 1

    assert found.num_blocks(pool_bytes) == pages
    assert found.max_batch(pool_bytes, tokens) == sessions


@given(specs(), st.integers(1, 3000), st.integers(1, 4), st.booleans(), st.sampled_from([64, 512]))
@settings(max_examples=60, deadline=None)
def test_llama_cpp_cell_by_cell(spec: ModelSpec, n_ctx: int, n_seq: int, unified: bool, ubatch: int) -> None:
    """Every stream gets cells in steps of 256 until its share of the context, or window and ubatch, has room."""
    args = {"n_ctx": n_ctx, "n_seq_max": n_seq, "kv_unified": unified, "n_ubatch": ubatch}
    found = layout_of("llama.cpp", spec, n_ctx, engine_args=args)
    assert isinstance(found, LlamaCppLayout)
    share = n_ctx if unified else n_ctx // n_seq
    total = 0
    for _ in range(1 if unified else n_seq):
        context = 0
        while context < share:
            context += 256
        for group in spec.layer_groups:
            for attention in group.attention:
                cells = context
                if isinstance(attention, GroupedQueryAttention) and attention.sliding_window:
                    wanted = min(context, attention.sliding_window * (n_seq if unified else 1) + ubatch)
                    cells = next(c for c in range(0, context + 256, 256) if c >= wanted)
                row = sum(t.heads * t.dim * 2 for t in attention.tensors())
                total += len(group.indices) * cells * row

    assert found.allocated_bytes(n_ctx, n_seq) == total


@given(specs(), st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_transformers_token_by_token(spec: ModelSpec, tokens: int) -> None:
    """A token is appended to every layer; a sliding layer drops its oldest once it holds window - 1."""
    found = layout_of("transformers", spec, 4096)
    assert isinstance(found, GrowingCache)
    held = 0
    for group in spec.layer_groups:
        for attention in group.attention:
            window = getattr(attention, "sliding_window", None)
            row: list[int] = []
            for token in range(tokens):
                row.append(token)
                if window and len(row) > window - 1:
                    row.pop(0)
            held += len(group.indices) * len(row) * sum(t.heads * t.dim * 2 for t in attention.tensors())

    assert found.session_bytes(tokens) == held


@pytest.mark.parametrize("name", ENGINES)
@given(spec=specs(), tokens=st.integers(1, 4000), pool=st.integers(10**6, 10**9), more=st.integers(0, 10**9))
@settings(max_examples=25, deadline=None)
def test_laws_of_capacity(name: str, spec: ModelSpec, tokens: int, pool: int, more: int) -> None:
    """More memory never holds fewer, more tokens never cost less, reserved is at least what mathematics must keep."""
    found = layout_of(name, spec, 4096)
    logical = int(session_bytes(spec, tokens, found.kv_format, Parallelism()))
    shown = 1 if name == "transformers" else 0  # its sliding layers keep one token less than the window

    assert 0 <= found.max_batch(pool, tokens) <= found.max_batch(pool + more, tokens)
    assert found.session_bytes(tokens) <= found.session_bytes(tokens + 100)
    assert found.session_bytes(tokens + shown) >= logical - shown * logical
    assert found.max_context(pool) <= found.max_context(pool + more) <= 4096
    assert found.capacity(pool).kv_tokens <= found.capacity(pool + more).kv_tokens


@pytest.mark.parametrize("name", ENGINES)
@given(spec=specs(), tokens=st.lists(st.integers(1, 4096), min_size=1, max_size=5), pool=st.integers(10**7, 10**9))
@settings(max_examples=15, deadline=None)
def test_arrays_equal_ints(name: str, spec: ModelSpec, tokens: list[int], pool: int) -> None:
    """One call on an array is the loop over ints."""
    found = layout_of(name, spec, 4096)
    lengths = np.array(tokens, dtype=np.int64)
    pools = np.full(len(tokens), pool, dtype=np.int64)

    assert list(np.asarray(found.session_bytes(lengths))) == [found.session_bytes(n) for n in tokens]
    assert list(np.asarray(found.max_batch(pools, lengths))) == [found.max_batch(pool, n) for n in tokens]


@pytest.mark.parametrize("name", ENGINES)
def test_what_starts_fits(name: str) -> None:
    """needed_bytes is the least pool that serves one session of the maximum length."""
    spec = model(("0-3", heads(8, 2, 64)), ("4-7", heads(8, 2, 64, window=512)))
    found = engine(name).layout(Deployment(spec=spec, gpu=H100, max_model_len=4096))
    needed = found.needed_bytes(4096)

    assert found.max_batch(needed, 4096) >= 1
    assert found.max_context(needed) == 4096
