"""Parameters by hand and as published; what a rank holds of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.catalog import load_model
from kvplan.errors import UnknownName
from kvplan.matrix import Weight, linear
from kvplan.mlp import DenseMlp, MoeMlp
from kvplan.model import LayerGroup, ModelSpec, OtherWeight, PartFormat, Quantization
from kvplan.parallel import Parallelism
from kvplan.weights import (
    params_active,
    params_by_part,
    params_mtp,
    params_total,
    rank_bytes,
    rank_bytes_by_part,
    rank_bytes_of,
)

HEADS = GroupedQueryAttention(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
LATENT = MultiHeadLatentAttention(
    num_attention_heads=4, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, q_lora_rank=12
)
EXPERTS = MoeMlp(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, shared_intermediate_size=32)


def model(*groups: LayerGroup, **more: object) -> ModelSpec:
    spec = ModelSpec(
        name="small", source="made up", model_type="toy", torch_dtype="bfloat16", hidden_size=32, vocab_size=100,
        max_position_embeddings=64, layer_groups=groups or (LayerGroup(layers="0", attention=(HEADS,)),),
    )  # fmt: skip
    return replace(spec, **more)  # type: ignore[arg-type]


def quantized(spec: ModelSpec, weight_format: str | None, **more: object) -> ModelSpec:
    return replace(spec, quantization=Quantization(quant_method="x", weight_format=weight_format, **more))  # type: ignore[arg-type]


def test_a_dense_layer_counted_by_hand() -> None:
    layer = LayerGroup(layers="0-2", attention=(HEADS,), mlp=DenseMlp(intermediate_size=64), norm_elements=64)
    spec = model(layer, other_weights=(OtherWeight(part="norm", numel=32),))
    attention = 32 * 32 + 2 * 32 * 16 + 32 * 32
    assert params_by_part(spec) == {
        "embedding": 3200, "head": 3200, "attention": 3 * attention, "mlp": 3 * 3 * 32 * 64, "norm": 3 * 64 + 32,
    }  # fmt: skip


def test_flags_of_attention_add_their_elements() -> None:
    plain = params_total(model())
    flags = replace(HEADS, qkv_bias=True, o_bias=True, qk_norm="head", sinks=True, output_gate=True)
    more = params_total(model(LayerGroup(layers="0", attention=(flags,)))) - plain
    assert more == (2 * 32 + 2 * 16) + 32 + 2 * 8 + 4 + 32 * 32  # the gate's rows have biases as Q's have
    assert params_total(model(LayerGroup(layers="0", attention=(replace(HEADS, k_is_v=True),)))) == plain - 32 * 16
    assert params_total(model(LayerGroup(layers="0", attention=(replace(HEADS, shared_block=True),)))) == 6400


def test_latent_attention_counted_by_hand() -> None:
    down, up = 32 * 12 + 12 + 32 * 20 + 16, 12 * 4 * 12 + 16 * 4 * 16
    spec = model(LayerGroup(layers="0", attention=(LATENT,)))
    assert params_total(spec) - 6400 == down + up + 4 * 8 * 32


def test_of_routed_experts_only_the_chosen_are_active() -> None:
    spec = model(LayerGroup(layers="0-1", attention=(HEADS,), mlp=EXPERTS))
    expert, shared, router = 3 * 32 * 16, 3 * 32 * 32, 32 * 8
    assert params_by_part(spec)["experts"] == 2 * 8 * expert
    assert params_total(spec) - params_active(spec) == 2 * 6 * expert
    assert params_by_part(spec)["shared_experts"] + params_by_part(spec)["router"] == 2 * (shared + router)


def test_a_tied_head_counts_once() -> None:
    assert params_total(model()) - params_total(model(tie_word_embeddings=True)) == 3200


def test_the_prediction_module_is_counted_apart() -> None:
    module = (LayerGroup(layers="1", attention=(HEADS,)),)
    spec = model(mtp=module)
    assert (params_total(spec), params_mtp(spec)) == (params_total(model()), 3072)
    assert rank_bytes(spec, Parallelism(), mtp=True) - rank_bytes(spec, Parallelism()) == 2 * 3072
    assert rank_bytes_by_part(spec, Parallelism(), mtp=True)["mtp"] == 2 * 3072


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # transformers 5.24, each class instantiated from its config on the meta device
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-4-scout", 108_641_793_536),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", 671_026_404_352),
        ("deepseek-v3.2", 671_877_929_216),
        ("deepseek-v4-flash", 284_332_230_231),
        ("kimi-k2.5", 1_026_879_353_328),
        ("kimi-linear-48b-a3b", 49_122_675_072),
        ("glm-5.3-flash", 313_890_426_878),
        ("gpt-oss-120b", 116_829_156_672),
        ("qwen3-next-80b-a3b", 79_674_391_296),
        ("qwen3-vl-235b-a22b", 235_670_022_896),
        ("qwen2.5-omni-7b", 10_732_225_408),
        ("gemma-3-27b", 27_432_406_640),
        ("gemma-4-e2b", 5_104_297_504),
        ("minimax-m3", 427_040_132_864),
        ("nemotron-3-nano-30b-a3b", 31_577_937_344),
        ("falcon-h1-0.5b", 521_411_104),
        ("zamba2-7b", 7_356_749_648),
        ("jamba-1.5-mini", 51_570_323_328),
        ("falcon-mamba-7b", 7_272_665_088),
        ("falcon-180b", 178_557_088_768),
        ("gpt-neox-20b", 20_554_567_680),
        ("opt-66b", 65_719_701_504),
        ("pixtral-12b", 12_682_739_712),
        ("glm-4.1v-9b", 10_292_777_472),
        ("starcoder2-7b", 7_173_923_840),
        # safetensors metadata of the repositories
        ("qwen2.5-vl-7b", 8_292_166_656),
        ("whisper-large-v3", 1_543_490_560),
    ],
)
def test_published_totals(name: str, total: int) -> None:
    assert params_total(load_model(name)) == total


@pytest.mark.parametrize(
    ("name", "billions"),
    [("deepseek-v3", 37), ("mixtral-8x7b", 12.9), ("qwen3-235b-a22b", 22), ("gpt-oss-120b", 5.1), ("kimi-k2", 32),
     ("llama-4-scout", 17), ("jamba-1.5-mini", 12), ("dbrx", 36), ("kimi-k3", 104)],
)  # fmt: skip
def test_active_parameters_are_as_the_model_cards_round_them(name: str, billions: float) -> None:
    """Cards count the embedding or leave it out, so one of the two must be near."""
    spec = load_model(name)
    active = params_active(spec)
    beside = active - spec.vocab_size * spec.hidden_size
    assert min(abs(active / 1e9 / billions - 1), abs(beside / 1e9 / billions - 1)) < 0.03


def test_heads_share_out_and_what_has_no_heads_is_copied() -> None:
    grouped = [w for w in HEADS.weights(32) if w.module in {"k_proj", "q_proj"}]
    assert [w.numel_per_rank(8) for w in grouped] == [32 * 8, 32 * 8]  # half of four query heads; one KV head, copied
    down = next(w for w in LATENT.weights(32) if w.module == "kv_a_proj_with_mqa")
    up = next(w for w in LATENT.weights(32) if w.module == "kv_b_proj")
    assert (down.numel_per_rank(4), up.numel_per_rank(4)) == (down.numel, up.numel // 4)


def test_the_vocabulary_is_padded_to_64_rows_and_split() -> None:
    assert [rank_bytes_by_part(model(), Parallelism(tp=tp))["embedding"] for tp in (1, 2)] == [128 * 64, 64 * 64]


def test_experts_share_out_by_columns_or_whole() -> None:
    spec = model(LayerGroup(layers="0", attention=(HEADS,), mlp=EXPERTS))
    by_columns = rank_bytes_by_part(spec, Parallelism(tp=4))
    whole = rank_bytes_by_part(spec, Parallelism(tp=4, ep=4))
    assert by_columns["experts"] == whole["experts"] == 2 * 8 * 3 * 32 * 16 // 4
    assert by_columns["router"] == 2 * 32 * 8
    uneven = rank_bytes_by_part(spec, Parallelism(tp=3, ep=3))["experts"]
    assert uneven == 2 * 3 * (3 * 32 * 16)


def test_the_heaviest_stage_counts() -> None:
    spec = model(LayerGroup(layers="0-2", attention=(HEADS,)), other_weights=(OtherWeight(part="norm", numel=32),))
    table, layer = 2 * 128 * 32, 2 * 3072
    assert rank_bytes(spec, Parallelism(pp=2)) == table + 2 * layer  # the first stage holds the remainder
    assert rank_bytes(spec, Parallelism(pp=3)) == table + layer + 2 * 32  # the last has the norm


def test_a_tied_table_stands_on_both_ends() -> None:
    spec = model(LayerGroup(layers="0-1", attention=(HEADS,)), tie_word_embeddings=True)
    heavy = replace(spec, other_weights=(OtherWeight(part="head", numel=100),))
    assert rank_bytes_by_part(heavy, Parallelism(pp=2)) == {"embedding": 8192, "attention": 6144, "head": 200}


def test_what_engines_compute_is_memory_and_no_parameter() -> None:
    table = OtherWeight(part="rotary", numel=64 * 8, held="engine")
    speech = OtherWeight(part="audio", numel=1000, held="checkpoint")
    spec = model(LayerGroup(layers="0-1", attention=(HEADS,)), other_weights=(table, speech))
    assert params_by_part(spec).get("rotary") is None
    assert params_by_part(spec)["audio"] == 1000
    for pp in (1, 2):
        assert rank_bytes_by_part(spec, Parallelism(pp=pp))["rotary"] == 1024
    assert "audio" not in rank_bytes_by_part(spec, Parallelism())


@pytest.mark.parametrize(
    ("weight_format", "bits"),
    [("fp8", 8), ("nvfp4", 4.5), ("mxfp8", 8.25), ("int4", 4.15625), ("int4_g32", 4.5), ("fp8_block", 8 + 32 / 128**2)],
)
def test_linear_layers_take_the_format_with_its_scales(weight_format: str, bits: float) -> None:
    (matrix,) = linear("mlp", 1024, 4096)
    assert rank_bytes_of(quantized(model(), weight_format), matrix, Parallelism()) == 1024 * 4096 * bits / 8


def test_a_scale_for_each_row() -> None:
    (matrix,) = linear("mlp", 1024, 4096, units=4096)
    spec = quantized(model(), "int8_channel")
    assert rank_bytes_of(spec, matrix, Parallelism(tp=4)) == 1024 * (1024 + 4)


def test_embedding_norms_and_head_stay_as_they_are_unless_named() -> None:
    spec = quantized(model(), "fp8")
    parts = rank_bytes_by_part(spec, Parallelism())
    assert (parts["embedding"], parts["head"], parts["attention"]) == (8192, 8192, 3072)
    named = quantized(model(), "fp8", parts=(PartFormat(part="head", weight_format="fp8"),))
    assert rank_bytes_by_part(named, Parallelism())["head"] == 4096


def test_parts_and_modules_may_differ_from_the_rest() -> None:
    spec = model(LayerGroup(layers="0", attention=(HEADS,), mlp=EXPERTS))
    mixed = quantized(
        spec, "fp8", parts=(PartFormat(part="experts", weight_format="mxfp8"),), unquantized=("attention",)
    )
    parts = rank_bytes_by_part(mixed, Parallelism())
    experts = 8 * 3 * 32 * 16
    assert (parts["attention"], parts["experts"], parts["shared_experts"]) == (6144, experts * 33 // 32, 3072)
    but_output = quantized(spec, "fp8", unquantized=("attention.q_proj", "attention.k_proj", "attention.v_proj"))
    assert rank_bytes_by_part(but_output, Parallelism())["attention"] == 2 * 2048 + 1024


def test_an_unknown_format_is_named_with_its_neighbours() -> None:
    with pytest.raises(UnknownName, match=r"small: unknown weight format 'fp9'.*fp8"):
        rank_bytes(quantized(model(), "fp9"), Parallelism())


def test_a_quantized_latent_keeps_a_16_bit_copy_for_decoding() -> None:
    spec = model(LayerGroup(layers="0", attention=(LATENT,)))
    up = 16 * 4 * 16
    plain, small = (rank_bytes_by_part(s, Parallelism())["attention"] for s in (spec, quantized(spec, "fp8")))
    assert small == plain // 2 + 2 * up
    kept = quantized(spec, "fp8", unquantized=("attention",))
    assert rank_bytes_by_part(kept, Parallelism())["attention"] == plain


def test_mxfp4_experts_are_padded_to_the_kernels_tile() -> None:
    expert = Weight("experts", 4 * 2880 * 2880, units=2880, experts=4)
    assert expert.numel_per_rank(2, tile=(256, 128)) == 4 * 3072 * 1536
    assert expert.numel_per_rank(1) == expert.numel
    assert (
        Weight("experts", 4 * 2880, units=2880, experts=4, matrix=False).numel_per_rank(1, tile=(256, 128)) == 4 * 2880
    )


attentions = st.builds(
    lambda kv, group, dim: GroupedQueryAttention(num_attention_heads=kv * group, num_key_value_heads=kv, head_dim=dim),
    st.integers(1, 12), st.integers(1, 8), st.sampled_from([16, 64, 128]),
)  # fmt: skip
mlps = st.one_of(
    st.builds(DenseMlp, intermediate_size=st.integers(1, 500)),
    st.builds(
        MoeMlp,
        num_experts=st.integers(2, 40),
        num_experts_per_tok=st.just(2),
        moe_intermediate_size=st.integers(1, 300),
    ),
)
specs = st.builds(
    lambda attention, mlp, vocab, fmt: quantized(
        model(LayerGroup(layers="0-3", attention=(attention,), mlp=mlp), vocab_size=vocab), fmt
    ),
    st.one_of(attentions, st.just(LATENT)), mlps, st.integers(1, 1000),
    st.sampled_from([None, "fp8", "nvfp4", "mxfp4"]),
)  # fmt: skip


@given(specs, st.integers(1, 9), st.booleans())
def test_ranks_together_hold_at_least_the_whole(spec: ModelSpec, tp: int, ep: bool) -> None:
    parallel = Parallelism(tp=tp, ep=tp if ep else 1)
    whole, share = (rank_bytes_by_part(spec, p) for p in (Parallelism(), parallel))
    assert all(tp * share[part] >= size for part, size in whole.items())


@given(specs, st.integers(1, 8))
def test_more_ranks_never_hold_more_each(spec: ModelSpec, tp: int) -> None:
    assert rank_bytes(spec, Parallelism(tp=2 * tp)) <= rank_bytes(spec, Parallelism(tp=tp))


@given(specs)
def test_parts_add_up(spec: ModelSpec) -> None:
    for parallel in (Parallelism(), Parallelism(tp=2, pp=2)):
        assert sum(rank_bytes_by_part(spec, parallel).values()) == rank_bytes(spec, parallel)
