"""Small deployments for engine tests."""

from __future__ import annotations

from typing import Any

from kvplan.attention import Attention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.base import Deployment
from kvplan.gpu import GpuSpec
from kvplan.model import LayerGroup, ModelSpec
from kvplan.parallel import Parallelism

H100 = GpuSpec(
    name="h100", vendor="nvidia", architecture="hopper", memory_bytes=85029158912, compute_capability=(9, 0),
    sources={"memory_bytes": "test", "compute_capability": "test"},
)  # fmt: skip


def heads(query: int, kv: int, dim: int, v_dim: int | None = None, window: int | None = None) -> GroupedQueryAttention:
    """Softmax attention."""
    return GroupedQueryAttention(
        num_attention_heads=query, num_key_value_heads=kv, head_dim=dim, v_head_dim=v_dim, sliding_window=window
    )


def latent(query: int = 128, *, index: bool = False) -> MultiHeadLatentAttention:
    """DeepSeek's record, with DeepSeek-V3.2's indexer or without."""
    return MultiHeadLatentAttention(
        num_attention_heads=query, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        index_head_dim=128 if index else None, index_n_heads=64 if index else None, index_topk=2048 if index else None,
    )  # fmt: skip


def model(*groups: tuple[str, Attention], dtype: str = "bfloat16", longest: int = 131072) -> ModelSpec:
    """Groups of (layers, attention)."""
    return ModelSpec(
        name="toy", source="test", model_type="toy", torch_dtype=dtype, hidden_size=64, vocab_size=128,
        max_position_embeddings=longest, layer_groups=tuple(LayerGroup(layers=x, attention=(a,)) for x, a in groups),
    )  # fmt: skip


def deployment(spec: ModelSpec, tokens: int = 4096, **options: Any) -> Deployment:
    """On one H100 unless told otherwise."""
    parallel = Parallelism(**{k: options.pop(k) for k in ("tp", "pp", "dp", "dcp") if k in options})
    return Deployment(spec=spec, gpu=options.pop("gpu", H100), max_model_len=tokens, parallel=parallel, **options)
