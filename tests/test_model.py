"""A model's cost is a line; arrays and ints agree; sharing never loses bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import GatedDeltaNet
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.errors import BadInput
from kvplan.layers import layer_indices, layer_ranges
from kvplan.model import (
    LayerGroup,
    ModelSpec,
    cost_line,
    read_bytes,
    session_bytes,
    session_bytes_all_ranks,
)
from kvplan.parallel import Parallelism, stage_sizes
from kvplan.storage import kv_format

BF16 = kv_format("bf16")


def spec_of(*groups: LayerGroup, name: str = "toy") -> ModelSpec:
    return ModelSpec(
        name=name, source="test", model_type="toy", torch_dtype="bfloat16", hidden_size=64, vocab_size=100,
        max_position_embeddings=4096, layer_groups=groups,
    )  # fmt: skip


def heads(kv: int, *, window: int | None = None, query: int = 8, dim: int = 16) -> GroupedQueryAttention:
    return GroupedQueryAttention(num_attention_heads=query, num_key_value_heads=kv, head_dim=dim, sliding_window=window)


MIXED = spec_of(
    LayerGroup(layers="0-6/2", attention=(heads(4),)),
    LayerGroup(layers="1-5/2", attention=(heads(2, window=100),)),
    LayerGroup(
        layers="7",
        attention=(GatedDeltaNet(num_key_heads=2, num_value_heads=4, key_head_dim=8, value_head_dim=8, conv_kernel=4),),
    ),
)
gqa_specs = st.builds(
    lambda kv, share, dim, full, slid, window: spec_of(
        LayerGroup(layers=f"0-{full - 1}", attention=(heads(kv, query=kv * share, dim=dim),)),
        *(
            [LayerGroup(layers=f"{full}-{full + slid - 1}", attention=(heads(kv, window=window, query=kv * share),))]
            if slid
            else []
        ),
    ),
    st.integers(1, 16), st.integers(1, 8), st.integers(1, 256), st.integers(1, 40), st.integers(0, 40),
    st.integers(1, 5000),
)  # fmt: skip
parallels = st.builds(
    lambda tp, pp, dcp: Parallelism(tp=tp * dcp, pp=pp, dcp=dcp), st.integers(1, 16), st.just(1), st.integers(1, 4)
)


def test_the_line_of_a_hybrid_has_slope_and_intercept() -> None:
    """4 full layers x 2 x 4 x 16 x 2 B grow; 3 windows of 100 and one state do not."""
    line = cost_line(MIXED, 1000, BF16, Parallelism())

    assert line.bytes_per_token == 4 * 2 * 4 * 16 * 2
    assert line.fixed_bytes == 3 * 2 * 2 * 16 * 2 * 100 + (16 * 2 + 32) * 3 * 2 + 4 * 64 * 4


@given(gqa_specs, parallels, st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
def test_arrays_equal_ints(spec: ModelSpec, parallel: Parallelism, tokens: list[int]) -> None:
    """One call on an array is the loop over ints."""
    grid = session_bytes(spec, np.array(tokens, dtype=np.int64), BF16, parallel)

    assert list(grid) == [session_bytes(spec, n, BF16, parallel) for n in tokens]


@given(gqa_specs, parallels, st.integers(1, 10**6), st.integers(0, 1000))
def test_more_tokens_never_cost_less(spec: ModelSpec, parallel: Parallelism, tokens: int, more: int) -> None:
    """Bytes are monotone in the context."""
    assert session_bytes(spec, tokens, BF16, parallel) <= session_bytes(spec, tokens + more, BF16, parallel)


@given(gqa_specs, parallels, st.integers(1, 10**6))
def test_all_ranks_hold_at_least_the_whole(spec: ModelSpec, parallel: Parallelism, tokens: int) -> None:
    """Sharing may copy, never lose."""
    whole = session_bytes(spec, tokens, BF16, Parallelism())

    assert session_bytes_all_ranks(spec, tokens, BF16, parallel) >= whole


@given(gqa_specs, st.integers(1, 10**6))
def test_layer_groups_add(spec: ModelSpec, tokens: int) -> None:
    """A model costs the sum of its groups."""
    parts = [spec_of(LayerGroup(layers=f"0-{len(g.indices) - 1}", attention=g.attention)) for g in spec.layer_groups]

    assert session_bytes(spec, tokens, BF16, Parallelism()) == sum(
        session_bytes(p, tokens, BF16, Parallelism()) for p in parts
    )


@given(gqa_specs, st.integers(1, 10**6))
def test_a_window_never_exceeds_full_attention(spec: ModelSpec, tokens: int) -> None:
    """The same layers without their windows cost at least as much."""
    full = spec_of(
        *(
            LayerGroup(
                layers=g.layers,
                attention=tuple(
                    GroupedQueryAttention(
                        num_attention_heads=a.num_attention_heads,
                        num_key_value_heads=a.num_key_value_heads,
                        head_dim=a.head_dim,
                    )
                    for a in g.attention
                    if a.kind == "gqa"
                ),
            )
            for g in spec.layer_groups
        )
    )

    assert session_bytes(spec, tokens, BF16, Parallelism()) <= session_bytes(full, tokens, BF16, Parallelism())


@given(gqa_specs, st.integers(1, 10**6))
def test_a_step_reads_no_more_than_is_stored(spec: ModelSpec, tokens: int) -> None:
    """Read bytes are at most stored bytes where nothing is shared."""
    assert read_bytes(spec, tokens, BF16, Parallelism()) <= session_bytes(spec, tokens, BF16, Parallelism())


def test_the_fullest_pipeline_stage_governs() -> None:
    """61 layers on 2 stages are 31 and 30."""
    spec = spec_of(LayerGroup(layers="0-60", attention=(heads(4),)))

    assert session_bytes(spec, 100, BF16, Parallelism(pp=2)) == 31 * 2 * 4 * 16 * 2 * 100


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"), [(80, 3, (27, 27, 26)), (61, 2, (31, 30)), (62, 4, (15, 16, 16, 15))]
)
def test_stages_as_vllm_deals_them(layers: int, pp: int, sizes: tuple[int, ...]) -> None:
    """The remainder goes to the stages before the last (vLLM get_pp_indices)."""
    assert stage_sizes(layers, pp) == sizes


def test_decode_context_parallelism_divides_what_grows() -> None:
    """A latent of 1,001 tokens over 4 ranks: 251 on the fullest."""
    mla = MultiHeadLatentAttention(
        num_attention_heads=8, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
    )
    spec = spec_of(LayerGroup(layers="0", attention=(mla,)))

    assert session_bytes(spec, 1001, BF16, Parallelism(tp=8, dcp=4)) == 251 * 1152


@given(st.sets(st.integers(0, 200), min_size=1))
def test_layer_ranges_read_back(indices: set[int]) -> None:
    """What is written is what is read."""
    assert sorted(layer_indices(layer_ranges(indices))) == sorted(indices)


@pytest.mark.parametrize("text", ["", "a", "5-3", "0-9/0", "0--3", "1,,2", "0-99999999999", "-1"])
def test_bad_layer_texts_are_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(BadInput, match="layers"):
        layer_indices(text)


@pytest.mark.parametrize(("first", "second"), [("0-3", "3-5"), ("0-3", "5-6"), ("1-3", "4")])
def test_every_layer_stands_in_one_group(first: str, second: str) -> None:
    """Overlaps and gaps are errors."""
    with pytest.raises(BadInput, match="layer_groups"):
        spec_of(LayerGroup(layers=first, attention=(heads(1),)), LayerGroup(layers=second, attention=(heads(1),)))
