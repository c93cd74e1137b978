"""What vLLM's tests plan: the geometry of published configs, and nothing else of them; GPUs by size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvplan.attention import Attention
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import GatedDeltaNet
from kvplan.attention.mamba import Mamba2
from kvplan.engines.vllm import ENGINE
from kvplan.engines.vllm.layout import VllmLayout
from kvplan.gpu import GpuSpec
from kvplan.model import LayerGroup, ModelSpec
from tests.engines.toys import H100, deployment, heads, latent, model

GIB = 2**30


def of_gib(name: str, gib: int, capability: tuple[int, int] | None) -> GpuSpec:
    """A GPU of so many GiB."""
    figures = {"memory_bytes": gib * GIB, "compute_capability": capability}
    sources = {figure: "test" for figure, value in figures.items() if value}
    return replace(H100, name=name, sources=sources, memory_bytes=gib * GIB, compute_capability=capability)


def layout(spec: ModelSpec, tokens: int = 8192, **options: Any) -> VllmLayout:
    """The engine's answer for a deployment on one H100 unless told otherwise."""
    return ENGINE.layout(deployment(spec, tokens, **options))


def interleaved(layers: int, every: int, full: Attention, rest: Attention) -> ModelSpec:
    """Every `every`-th layer is `full`, the others `rest`."""
    chosen = [i for i in range(layers) if (i + 1) % every == 0]
    others = [i for i in range(layers) if (i + 1) % every]
    return model((_text(others), rest), (_text(chosen), full))


def _text(indices: list[int]) -> str:
    return ",".join(map(str, indices))


def sinks(window: int | None) -> GroupedQueryAttention:
    """gpt-oss: 64 query heads, 8 KV heads of 64, a learned sink per head."""
    return GroupedQueryAttention(
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, sliding_window=window, sinks=True
    )


def compressed(ratio: int) -> CompressedAttention:
    """DeepSeek-V4's layer, compressed by `ratio` (0: windows alone)."""
    return CompressedAttention(
        num_attention_heads=64, head_dim=512, qk_rope_head_dim=64, sliding_window=128, compress_ratio=ratio,
        compressor_overlap=ratio == 4, index_head_dim=128 if ratio == 4 else None,
        index_n_heads=64 if ratio == 4 else None, index_topk=512 if ratio == 4 else None,
    )  # fmt: skip


LLAMA_8B = model(("0-31", heads(32, 8, 128)))
GEMMA_12B = interleaved(48, 6, heads(16, 8, 256), heads(16, 8, 256, window=1024))
GEMMA_27B = interleaved(62, 6, heads(32, 16, 128), heads(32, 16, 128, window=1024))
GPT_OSS_20B = model(("0-23/2", sinks(128)), ("1-23/2", sinks(None)))
V2_LITE, V3, V32 = model(("0-26", latent(16))), model(("0-60", latent())), model(("0-60", latent(index=True)))
GDN = GatedDeltaNet(num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
QWEN_NEXT = interleaved(48, 4, heads(16, 2, 256), GDN)
QWEN35_35B = replace(
    interleaved(40, 4, heads(16, 2, 256), GDN), model_type="qwen3_5_moe_text", mamba_ssm_dtype="float32"
)
MAMBA2 = Mamba2(num_heads=128, head_dim=64, n_groups=8, state_size=128, conv_kernel=4)
FALCON_H1 = ModelSpec(
    name="falcon-h1", source="test", model_type="toy", torch_dtype="bfloat16", hidden_size=64, vocab_size=128,
    max_position_embeddings=8192, layer_groups=(LayerGroup(layers="0-3", attention=(MAMBA2, heads(16, 4, 64))),),
)  # fmt: skip
V4_FLASH = model(("0-1", compressed(0)), ("2-42/2", compressed(4)), ("3-41/2", compressed(128)), longest=1048576)
V3_MTP = replace(V3, mtp=(LayerGroup(layers="61", attention=(latent(),)),))
V32_MTP = replace(V32, mtp=(LayerGroup(layers="61", attention=(latent(index=True),)),))
V4_FLASH_MTP = replace(V4_FLASH, mtp=(LayerGroup(layers="43", attention=(compressed(0),)),))
