"""The closed forms against an allocator that lays out every block, on random geometries; and laws that hold for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.attention import Attention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.engines.vllm import ENGINE
from kvplan.engines.vllm.layout import VllmLayout
from kvplan.engines.vllm.pages import PageSpec
from kvplan.engines.vllm.sessions import InFlight, blocks_of
from kvplan.model import ModelSpec, session_bytes
from kvplan.parallel import Parallelism
from tests.engines import oracle_vllm as oracle
from tests.engines.toys import deployment, heads, latent, model
from tests.engines.vllm_models import GDN, MAMBA2, V4_FLASH

LONGEST = 400
TINY_GDN = GDN.__class__(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=16, conv_kernel=4)


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Heads that every backend takes: full, in windows or in chunks."""
    kv_heads, dim = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([16, 32]))
    kind = draw(st.sampled_from(["full", "window", "chunk"]))
    bound = draw(st.sampled_from([16, 32, 48, 64, 96]))
    return GroupedQueryAttention(
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=dim,
        sliding_window=bound if kind == "window" else None,
        attention_chunk_size=bound if kind == "chunk" else None,
    )


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """A few runs of layers; one of states at most."""
    runs = draw(st.lists(st.tuples(st.integers(1, 4), attentions()), min_size=1, max_size=3))
    if draw(st.booleans()):
        runs.append((draw(st.integers(1, 4)), TINY_GDN))
    groups, first = [], 0
    for layers, attention in runs:
        groups.append((f"{first}-{first + layers - 1}", attention))
        first += layers
    return model(*groups)


@st.composite
def layouts(draw: st.DrawFn) -> VllmLayout:
    """A deployment of such a model with few tokens in flight, so that windows matter."""
    spec = draw(specs())
    seqs = draw(st.integers(1, 24))
    return ENGINE.layout(
        deployment(
            spec,
            LONGEST,
            tp=draw(st.sampled_from([1, 2])),
            kv_dtype=draw(st.sampled_from(["auto", "fp8"])),
            max_num_seqs=seqs,
            max_num_batched_tokens=draw(st.integers(seqs, 64)),
            engine_args={"enable_prefix_caching": draw(st.booleans())},
        )
    )


@given(layouts(), st.integers(1, 60), st.integers(1, LONGEST))
@settings(max_examples=60, deadline=None)
def test_closed_forms_equal_the_slow_allocator(layout: VllmLayout, blocks: int, tokens: int) -> None:
    """Blocks, blocks of a session, sessions at once, longest context, whatever the geometry."""
    pool = layout.bytes_per_block * blocks + layout.bytes_per_block // 2

    assert layout.num_blocks(pool) == oracle.carve(layout, pool)
    assert layout.blocks_per_session(tokens) == oracle.session(layout, tokens)
    assert layout.max_batch(pool, tokens) == oracle.admitted(layout, pool, tokens)
    assert layout.max_context(pool) == oracle.longest(layout, pool)


@given(
    st.sampled_from(["full", "sliding", "chunked"]), st.sampled_from([1, 2, 4, 16]), st.integers(1, 8),
    st.integers(1, 40), st.integers(1, 200), st.data(),
)  # fmt: skip
def test_admission_covers_every_schedule(
    growth: str, block: int, bound_blocks: int, step: int, tokens: int, data: st.DataObject
) -> None:
    """However a prefill is cut into steps, no session outgrows its charge, which is at most two blocks above."""
    pages = PageSpec(growth=growth, block_size=block, state_bytes=1, bound=block * bound_blocks)  # type: ignore[arg-type]
    charge = blocks_of(pages, InFlight(tokens=step)).of(tokens)
    first = data.draw(st.integers(1, step))

    assert oracle.peak(pages, tokens, step, first) <= charge
    if growth == "sliding":
        worst = max(oracle.peak(pages, tokens, step, n) for n in range(1, step + 1))
        assert charge - worst <= 2


@given(layouts(), st.integers(1, LONGEST), st.integers(1, LONGEST))
@settings(max_examples=60, deadline=None)
def test_a_longer_session_never_holds_less(layout: VllmLayout, a: int, b: int) -> None:
    """Blocks, bytes and the pool that start-up asks for grow with the context."""
    short, long = sorted((a, b))

    assert layout.blocks_per_session(short) <= layout.blocks_per_session(long)
    assert layout.session_bytes(short) <= layout.session_bytes(long)
    assert layout.needed_bytes(short) <= layout.needed_bytes(long)


@given(layouts(), st.integers(0, 2**22), st.integers(0, 2**22), st.integers(1, LONGEST))
@settings(max_examples=60, deadline=None)
def test_more_memory_never_fits_less(layout: VllmLayout, a: int, b: int, tokens: int) -> None:
    """Blocks, tokens, concurrency, sessions, contexts."""
    small, large = sorted((a, b))
    less, more = layout.capacity(small), layout.capacity(large)

    assert (less.num_blocks, less.kv_tokens, less.max_concurrency) <= (
        more.num_blocks, more.kv_tokens, more.max_concurrency,
    )  # fmt: skip
    assert layout.max_batch(small, tokens) <= layout.max_batch(large, tokens)
    assert layout.max_context(small) <= layout.max_context(large)


@given(layouts(), st.integers(0, 2**22))
@settings(max_examples=60, deadline=None)
def test_the_longest_context_starts_and_one_more_token_does_not(layout: VllmLayout, pool: int) -> None:
    """`max_context` is where `needed_bytes` crosses the pool."""
    found = layout.max_context(pool)

    assert found == 0 or layout.needed_bytes(found) <= pool
    assert found == LONGEST or layout.needed_bytes(found + 1) > pool


@given(specs(), st.sampled_from([1, 2]), st.booleans(), st.integers(1, LONGEST))
@settings(max_examples=60, deadline=None)
def test_what_is_reserved_covers_what_is_stored(spec: ModelSpec, tp: int, cached: bool, tokens: int) -> None:
    """Pages, padding and states for reuse only ever add to the logical bytes."""
    layout = ENGINE.layout(deployment(spec, LONGEST, tp=tp, engine_args={"enable_prefix_caching": cached}))

    assert layout.session_bytes(tokens) >= session_bytes(spec, tokens, layout.kv_format, Parallelism(tp=tp))


@pytest.mark.parametrize("version", ["0.8.5", "0.11.2", "0.14.1", "0.19.1", "0.24.0", "0.28.0", "0.33.0"])
@pytest.mark.parametrize(
    "spec",
    [
        model(("0-9", heads(16, 4, 64)), ("10-19", heads(16, 4, 64, window=256))),
        model(("0-26", latent(16))),
        model(("0-7", heads(8, 8, 128))),
    ],
    ids=["windows", "latent", "full"],
)
def test_reserved_covers_stored_in_every_release(version: str, spec: ModelSpec) -> None:
    """At every length, in steps of a token and of a block."""
    layout = ENGINE.layout(deployment(spec, 4096, version=version))
    tokens = np.arange(1, 4097, dtype=np.int64)

    stored = session_bytes(spec, tokens, layout.kv_format, Parallelism())

    assert (layout.session_bytes(tokens) >= stored).all()


@pytest.mark.parametrize(
    "spec",
    [model(("0-9", heads(16, 4, 64)), ("10-19", heads(16, 4, 64, window=256))), model(("0-3", MAMBA2)), V4_FLASH],
    ids=["windows", "states", "compressed"],
)
def test_arrays_answer_like_numbers(spec: ModelSpec) -> None:
    """Element by element, in tokens and in bytes."""
    layout = ENGINE.layout(deployment(spec, 8192))
    tokens = np.array([1, 15, 16, 17, 255, 4096, 8192], dtype=np.int64)
    pools = tokens * layout.bytes_per_block

    assert layout.blocks_per_session(tokens).tolist() == [layout.blocks_per_session(int(n)) for n in tokens]
    assert layout.session_bytes(tokens).tolist() == [layout.session_bytes(int(n)) for n in tokens]
    assert layout.num_blocks(pools).tolist() == [layout.num_blocks(int(p)) for p in pools]
    assert layout.max_batch(pools, 100).tolist() == [layout.max_batch(int(p), 100) for p in pools]
    assert layout.max_batch(int(pools[-1]), tokens).tolist() == [
        layout.max_batch(int(pools[-1]), int(n)) for n in tokens
    ]
