"""The MLA block against transformers' DeepseekV3Attention, its float32 islands (norm, rotary, softmax) made float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.attention.mla import MultiHeadLatentAttention  # noqa: E402
from kvplan.validate.mla_block import MlaBlock, MlaWeights  # noqa: E402
from kvplan.validate.rope import Rope, Yarn  # noqa: E402

pytestmark = pytest.mark.heavy
HIDDEN, HEADS, TOKENS, STEP = 1024, 16, 200, 2
NAMES = ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")


@contextmanager
def float64_islands() -> Iterator[None]:
    with patch.object(torch, "float32", torch.float64), patch.object(torch, "float", torch.float64):
        yield


def theirs(weights: MlaWeights, hidden: Any, positions: Any) -> Any:
    """Output of every position, from a causal pass over the whole prompt."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as hf

    config = DeepseekV3Config(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        max_position_embeddings=163840,
        attn_implementation="eager",
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    )
    layer = hf.DeepseekV3Attention(config, layer_idx=0).to(torch.float64)
    layer.load_state_dict({f"{name}.weight": getattr(weights, name) for name in NAMES})
    rotary = hf.DeepseekV3RotaryEmbedding(config)
    causal = torch.full((TOKENS, TOKENS), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        return layer(hidden, rotary(hidden, positions), causal)[0]


@pytest.mark.parametrize("form", ["decode_absorbed", "decode_restored"])
def test_decode_equals_transformers(form: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    shape = MultiHeadLatentAttention(
        num_attention_heads=HEADS,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        q_lora_rank=1536,
    )
    weights = MlaWeights.random(shape, HIDDEN, seed=1, dtype=torch.float64)
    rope = Rope(dim=64, yarn=Yarn(factor=40, original_max_position_embeddings=4096))
    layer = MlaBlock(attention=shape, weights=weights, rope=rope)
    hidden = torch.randn(1, TOKENS, HIDDEN, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    positions = torch.arange(TOKENS)[None] + 6000
    with float64_islands():
        expected = theirs(weights, hidden, positions)[:, -STEP:]
    step = hidden[:, -STEP:], positions[:, -STEP:], layer.compress(hidden, positions), torch.tensor([TOKENS])
    assert (getattr(layer, form)(*step) - expected).abs().max() <= 1e-12
