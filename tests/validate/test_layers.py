"""Which layers of a model are run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import KimiDeltaAttention
from kvplan.catalog import load_model, model_names
from kvplan.errors import Unsupported
from kvplan.model import LayerGroup, ModelSpec
from kvplan.validate.layers import head_kinds, latent_layers, left_out, only_attention, with_layers


def test_a_sparse_indexer_is_left_out_and_its_sharing_makes_no_second_kind(spec: ModelSpec) -> None:
    [group] = spec.layer_groups
    [dense] = group.attention
    own = replace(dense, index_head_dim=128, index_topk=2048)
    shared = replace(group, layers="1", attention=(replace(own, shares_index=True),))
    sparse = replace(spec, layer_groups=(replace(group, layers="0", attention=(own,)), shared))
    assert latent_layers(sparse) == spec
    assert left_out(sparse) == ["Decode is dense: the keys of the sparse indexer are left out."]
    assert left_out(spec) == []


def test_of_a_hybrid_the_mla_layers_are_run(spec: ModelSpec) -> None:
    [group] = spec.layer_groups
    linear = LayerGroup(layers="2-4", attention=(KimiDeltaAttention(num_heads=4, head_dim=64, conv_kernel=4),))
    hybrid = replace(spec, layer_groups=(group, linear))
    assert latent_layers(hybrid) == spec
    assert left_out(hybrid) == ["Only the MLA layers are run; kda are left out."]


def test_two_shapes_of_mla_are_refused(spec: ModelSpec) -> None:
    [group] = spec.layer_groups
    [attention] = group.attention
    other = LayerGroup(layers="2", attention=(replace(attention, kv_lora_rank=256),))
    with pytest.raises(Unsupported, match="its MLA layers are of 2 shapes"):
        latent_layers(replace(spec, layer_groups=(group, other)))


@pytest.mark.parametrize(("heads", "gqa"), [(128, "gqa:8"), (20, "gqa:5"), (7, "gqa:7"), (11, "gqa:1")])
def test_query_heads_share_as_many_of_8_kv_heads_as_they_can(spec: ModelSpec, heads: int, gqa: str) -> None:
    [group] = spec.layer_groups
    attention = replace(group.attention[0], num_attention_heads=heads)
    assert head_kinds(replace(spec, layer_groups=(replace(group, attention=(attention,)),))) == ("mha", gqa, "mqa")


def test_a_model_without_mla_is_refused(spec: ModelSpec) -> None:
    attention = GroupedQueryAttention(num_attention_heads=8, num_key_value_heads=8, head_dim=64)
    other = replace(spec, name="plain", layer_groups=(LayerGroup(layers="0-1", attention=(attention,)),))
    with pytest.raises(Unsupported, match="plain has mha attention; validate decodes MLA, such as deepseek-v3"):
        latent_layers(other)


def test_fewer_layers_are_the_same_layers(spec: ModelSpec) -> None:
    assert with_layers(spec, 1).num_hidden_layers == 1
    assert only_attention(with_layers(spec, 1)) == only_attention(spec)


@pytest.mark.parametrize("name", [n for n in model_names() if n.startswith("deepseek-v3")])
def test_bundled_models_with_mla_can_be_run(name: str) -> None:
    model = load_model(name)
    assert latent_layers(model).num_hidden_layers == model.num_hidden_layers
