"""Small models and GPUs whose plans can be checked by hand, for tests of what people see."""

from __future__ import annotations

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.gpu import GpuSpec, Rates
from kvplan.mlp import DenseMlp, MoeMlp
from kvplan.model import LayerGroup, ModelSpec

GIB = 2**30


def _model(name: str, hidden_size: int, *groups: LayerGroup) -> ModelSpec:
    return ModelSpec(
        name=name, source="made up for tests", model_type="toy", torch_dtype="bfloat16", hidden_size=hidden_size,
        vocab_size=32768, max_position_embeddings=32768, layer_groups=groups,
    )  # fmt: skip


def _heads(kv_heads: int, window: int | None = None) -> GroupedQueryAttention:
    return GroupedQueryAttention(
        num_attention_heads=32, num_key_value_heads=kv_heads, head_dim=128, sliding_window=window
    )


LATENT = _model(
    "latent", 2048,
    LayerGroup(
        layers="0-31",
        attention=(
            MultiHeadLatentAttention(
                num_attention_heads=16, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
            ),
        ),
        mlp=MoeMlp(num_experts=64, num_experts_per_tok=6, moe_intermediate_size=1024),
    ),
)  # fmt: skip
"""1,152 B a token in each of 32 layers, on every rank."""

GROUPED = _model(
    "grouped", 4096, LayerGroup(layers="0-31", attention=(_heads(8),), mlp=DenseMlp(intermediate_size=14336))
)
"""4,096 B a token in each of 32 layers, shared out over 8 ranks."""

WINDOWED = _model(
    "windowed", 4096,
    LayerGroup(layers="0-23/3", attention=(_heads(4),), mlp=DenseMlp(intermediate_size=8192)),
    LayerGroup(layers="1-22/3,2-23/3", attention=(_heads(4, window=1024),), mlp=DenseMlp(intermediate_size=8192)),
)  # fmt: skip
"""2,048 B a token in each of 8 layers that grow, and 16 windows of 1,024 tokens."""

BARE_GPU = GpuSpec(
    name="bare", vendor="nvidia", architecture="hopper", memory_bytes=80 * GIB, compute_capability=(9, 0),
    sources={"memory_bytes": "made up", "compute_capability": "made up"},
)  # fmt: skip
"""No bandwidth and no rate, so no plan on it states a speed."""

GPU = GpuSpec(
    name="fast", vendor="nvidia", architecture="hopper", memory_bytes=80 * GIB, compute_capability=(9, 0),
    bytes_per_s=4e12, flops_per_s=Rates(bf16=8e14),
    sources=dict.fromkeys(("memory_bytes", "compute_capability", "bytes_per_s", "flops_per_s"), "https://example.com/made-up"),
)  # fmt: skip
"""The same with round peaks: a ridge of 200 FLOP a byte."""
