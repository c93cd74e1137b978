"""Image encoders that end in the decoder's width: a merger of neighbouring patches is part of them.

Sizes and class defaults are those of the transformers 5.24 classes and of the modelling files beside the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense, stack
from kvplan.hf.vit import Tower, Vit, frames, layers, merged_patches, part, read_vit
from kvplan.model import ModelSpec, OtherWeight

MOBILENET_V5 = 294_000_000
"""Parameters of mobilenetv5_300m_enc to three digits; the config names it and gives no sizes."""
_MOON_NAMES = {
    "hidden_size": "vt_hidden_size", "intermediate_size": "vt_intermediate_size",
    "num_hidden_layers": "vt_num_hidden_layers", "num_attention_heads": "vt_num_attention_heads",
}  # fmt: skip


def qwen2_vl(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen2-VL: `embed_dim` wide, LayerNorms, a merger to `hidden_size`."""
    vit = read_vit(vision, Vit(1280, 5120, 32, 16, 14), width_key="embed_dim")
    out, folded = vision.count("hidden_size") or 3584, merged_patches(vision) * vit.width
    inner = int((vision.number("mlp_ratio") or 4) * vit.width)
    yield from stack("vision", layers=vit.layers, width=vit.width, inner=inner, heads=vit.heads)
    yield part(vit.embedding(frames=frames(vision), bias=False) + 2 * vit.width)
    yield part(dense(folded, folded) + dense(folded, out))


def qwen2_5_vl(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen2.5-VL: RMS norms and gated MLPs with biases."""
    vit = read_vit(vision, Vit(3584, 3420, 32, 16, 14))
    out, folded = vision.count("out_hidden_size") or 3584, merged_patches(vision) * vit.width
    yield from layers(vit, gated=True, norm_vectors=1)
    yield part(vit.embedding(frames=frames(vision), bias=False) + vit.width)
    yield part(dense(folded, folded) + dense(folded, out))


def qwen3_vl(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen3-VL, 3.5, 3-Omni: a table of positions, and one more merger for each layer that feeds the decoder deep."""
    vit = read_vit(vision, Vit(1152, 4304, 27, 16, 16))
    out, folded = vision.count("out_hidden_size") or 3584, merged_patches(vision) * vit.width
    merger = dense(folded, folded) + dense(folded, out)
    deep = vision.sequence("deepstack_visual_indexes")
    yield from layers(vit)
    positions = (vision.count("num_position_embeddings") or 2304) * vit.width
    yield part(vit.embedding(frames=frames(vision)) + positions + 2 * vit.width + merger)
    yield part((3 if deep is None else len(deep)) * (merger + 2 * folded))


def qwen3_5(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen3.5: Qwen3-VL's, which feeds the decoder deep only where the file says so."""
    deep = vision.sequence("deepstack_visual_indexes") or []
    return qwen3_vl(vision.overlaid({"deepstack_visual_indexes": deep}), spec)


def glm4v(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """GLM-4.1V to 4.6V: blocks as wide inside as the output, a strided convolution, a gated merger."""
    vit = read_vit(vision, Vit(1536, 13696, 24, 12, 14, 336))
    out = vision.count("out_hidden_size") or 4096
    yield from stack(
        "vision", layers=vit.layers, width=vit.width, inner=out, heads=vit.heads, gated=True, norm_vectors=1,
        attention_biases=3 * vision.flag("attention_bias"), mlp_bias=False,
    )  # fmt: skip
    yield part(vit.embedding(frames=frames(vision)) + (vit.patches + 2) * vit.width)
    yield part(_glm_merger(vision, vit, out, vit.inner))


def glm_ocr(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """GLM-OCR and GLM-5.3: rotary positions, norms on the heads of Q and K, biases."""
    vit = read_vit(vision, Vit(1024, 4096, 24, 16, 14, 336))
    out, biased = vision.count("out_hidden_size") or 1536, vision.flag("attention_bias", True)
    yield from layers(
        vit, gated=True, norm_vectors=1, attention_biases=4 * biased, mlp_bias=biased, more=2 * (vit.width // vit.heads)
    )  # fmt: skip
    yield part(vit.embedding(frames=frames(vision)) + vit.width)
    yield part(_glm_merger(vision, vit, out, vision.count("projection_intermediate_size") or out * vit.channels))


def _glm_merger(vision: Fields, vit: Vit, out: int, inner: int) -> int:
    downsample = dense(merged_patches(vision) * vit.width, out)
    return downsample + out * out + 2 * out + 3 * out * inner


def moonvit(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """MoonViT (Kimi-VL, K2.5, K3): learned positions of a grid, and a projector that folds four patches."""
    raw = vision.raw
    vision = vision.overlaid({new: raw[old] for new, old in _MOON_NAMES.items() if raw.get(old) is not None})
    vit = read_vit(vision, Vit(1152, 4304, 27, 16, 14))
    grid = (vision.count("init_pos_emb_height") or 64) * (vision.count("init_pos_emb_width") or 64)
    vectors, folded = 1 if vision.text("norm_type") == "rmsnorm" else 2, 4 * vit.width
    yield from stack(
        "vision", layers=vit.layers, width=vit.width, inner=vit.inner, heads=vit.heads, norm_vectors=vectors,
        head_width=vision.count("qkv_hidden_size"), attention_biases=4 * vision.flag("attn_bias", True),
        mlp_bias=vision.flag("linear_bias", True),
    )  # fmt: skip
    yield part(vit.embedding(bias=vision.flag("patch_embed_proj_bias", True)) + (grid + vectors) * vit.width)
    yield part(2 * vit.width + dense(folded, folded) + dense(folded, spec.hidden_size))


def ernie(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """ERNIE-VL: a plain ViT, and a resampler that folds space and then time."""
    vit = read_vit(vision, Vit(1280, 5120, 32, 16, 14))
    folded, times = merged_patches(vision) * vit.width, vision.count("temporal_merge_size") or 2
    yield from layers(vit)
    yield part(vit.embedding(bias=False) + 2 * vit.width)
    yield part(3 * dense(folded, folded) + dense(times * folded, folded) + 4 * folded)
    yield part(dense(folded, spec.hidden_size) + spec.hidden_size)


def step(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Step 3.7: scaled residuals, two strided convolutions, a projection without bias."""
    vit = read_vit(vision, Vit(1536, 8960, 47, 16, 14, 728))
    yield from layers(vit, more=2 * vit.width)
    yield part(vit.embedding(bias=False) + vit.patches * vit.width + 2 * vit.width)
    yield part(dense(9 * vit.width, 2 * vit.width) + dense(18 * vit.width, 4 * vit.width))
    yield part(4 * vit.width * spec.hidden_size)


def mobilenet_v5(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Gemma 3n: a convolutional encoder of fixed sizes (timm's mobilenetv5_300m_enc), marks, norms and a matrix."""
    width = vision.count("hidden_size") or 2048
    yield part(MOBILENET_V5 + ((vision.count("vocab_size") or 128) + 2 + spec.hidden_size) * width)


TOWERS: Mapping[str, Tower] = {
    "qwen2_vl": qwen2_vl,
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_omni"), qwen2_5_vl),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe"), qwen3_vl),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), qwen3_5),
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v"), glm4v),
    **dict.fromkeys(("glm_ocr", "glm5_next"), glm_ocr),
    **dict.fromkeys(("moonvit", "kimi_k25", "kimi_vl", "kimi_k3"), moonvit),
    "ernie4_5_vl_moe": ernie,
    **dict.fromkeys(("step3p5", "step3p7"), step),
    "gemma3n": mobilenet_v5,
}
"""By `vision_config.model_type` without its tail (_vision, _vision_model, _vision_encoder)."""
