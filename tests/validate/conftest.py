"""A small model with MLA, as the planner knows it."""

from __future__ import annotations

import pytest

from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.model import LayerGroup, ModelSpec


@pytest.fixture
def spec() -> ModelSpec:
    """`small_mla` as a fixture."""
    return small_mla()


def small_mla() -> ModelSpec:
    """Two layers with DeepSeek-V3's latent and 16 heads."""
    attention = MultiHeadLatentAttention(
        num_attention_heads=16,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    return ModelSpec(
        name="small-mla",
        source="a test",
        model_type="deepseek_v3",
        torch_dtype="bfloat16",
        hidden_size=2048,
        vocab_size=1000,
        max_position_embeddings=4096,
        layer_groups=(LayerGroup(layers="0-1", attention=(attention,)),),
    )
