"""Image encoders that end in their own width, by the kind that `vision_config` names.

Sizes and class defaults are those of the transformers 5.24 classes and of the modelling files beside the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense, stack
from kvplan.hf.vit import Tower, Vit, frames, layers, part, read_vit
from kvplan.model import ModelSpec, OtherWeight


def siglip_sizes(vision: Fields) -> Vit:
    """SigLIP's sizes (base, 224 pixels)."""
    return read_vit(vision, Vit(768, 3072, 12, 12, 16))


def siglip(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """SigLIP without its pooling head: patches, a table of positions (`num_patches` in SigLIP 2), a final norm."""
    vit = siglip_sizes(vision)
    yield from layers(vit)
    yield part(vit.embedding() + (vision.count("num_patches") or vit.patches) * vit.width + 2 * vit.width)


def siglip_with_head(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """SigLIP with the attention pooling that the class has unless `vision_use_head` is false."""
    yield from siglip(vision, spec)
    if vision.flag("vision_use_head", True):
        vit = siglip_sizes(vision)
        attention = 4 * dense(vit.width, vit.width)
        yield part(attention + 3 * vit.width + dense(vit.width, vit.inner) + dense(vit.inner, vit.width))


def siglip_without_positions(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """VideoLLaMA 3: SigLIP with rotary positions."""
    vit = siglip_sizes(vision)
    yield from layers(vit)
    yield part(vit.embedding() + 2 * vit.width)


def idefics(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Idefics 3 and SmolVLM: SigLIP under other defaults."""
    vit = read_vit(vision, Vit(1152, 3072, 12, 16, 32))
    yield from layers(vit)
    yield part(vit.embedding() + vit.patches * vit.width + 2 * vit.width)


def idefics2(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Idefics 2: SigLIP under other defaults."""
    vit = read_vit(vision, Vit(768, 3072, 12, 12, 32))
    yield from layers(vit)
    yield part(vit.embedding() + vit.patches * vit.width + 2 * vit.width)


def clip(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """CLIP: a class token, patches without bias, positions, norms before and after."""
    vit = read_vit(vision, Vit(768, 3072, 12, 12, 32))
    yield from layers(vit)
    yield part(vit.embedding(bias=False) + (vit.patches + 2) * vit.width + 4 * vit.width)


def pixtral(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Pixtral: gated MLPs, RMS norms, rotary positions, no biases."""
    vit = read_vit(vision, Vit(1024, 4096, 24, 16, 16))
    yield from layers(vit, gated=True, attention_biases=0, mlp_bias=False, norm_vectors=1)
    yield part(vit.embedding(bias=False) + vit.width)


def llama4(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Llama 4: CLIP-like, then pixel shuffle and two layers of an adapter without biases."""
    vit = read_vit(vision, Vit(768, 5632, 34, 16, 14, 448))
    inputs, outputs = vision.count("projector_input_dim") or 4096, vision.count("projector_output_dim") or 4096
    yield from layers(vit)
    yield part(vit.embedding(bias=False) + (vit.patches + 2) * vit.width + 4 * vit.width)
    yield part(vit.inner * inputs + outputs * outputs)


def mllama(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Llama-3.2-Vision: local and gated global layers, positions of tiles of every aspect ratio."""
    vit = read_vit(vision, Vit(1280, 5120, 32, 16, 14, 448))
    deep, tiles = vision.count("num_global_layers") or 8, vision.count("max_num_tiles") or 4
    ratios = vision.sequence("supported_aspect_ratios")
    rows = (8 if ratios is None else len(ratios)) + 1
    yield from layers(vit, attention_biases=0)
    yield from stack(
        "vision", layers=deep, width=vit.width, inner=vit.inner, heads=vit.heads, attention_biases=0, more=2
    )  # fmt: skip
    seen = vit.patches + 1
    yield part(vit.embedding(bias=False) + (seen + 5) * vit.width + 3)
    yield part(rows * tiles * vit.width * (seen + 2))


def intern_vit(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """InternViT, of the repositories (`qkv_bias`) and of transformers (`attention_bias`): scaled residuals."""
    vit = read_vit(vision, Vit(1024, 4096, 24, 16, 14, 448))
    biased = vision.flag("qkv_bias", vision.flag("attention_bias"))
    normed = vision.flag("qk_normalization", vision.flag("use_qk_norm"))
    vectors = 1 if vision.text("norm_type") == "rms_norm" else 2
    yield from layers(
        vit, attention_biases=1 + 3 * biased, norm_vectors=vectors, more=(2 + 2 * normed) * vit.width
    )  # fmt: skip
    yield part(vit.embedding() + (vit.patches + 2) * vit.width)


def gemma4(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Gemma 4: the decoder's block (four norms, head norms), positions by row and by column."""
    vit = read_vit(vision, Vit(768, 3072, 16, 12, 16))
    dim = vision.count("head_dim") or vit.width // vit.heads
    yield from layers(vit, gated=True, attention_biases=0, mlp_bias=False, norms=4, norm_vectors=1, more=2 * dim)
    rows = vision.count("position_embedding_size") or 10240
    yield part(vit.embedding(bias=False) + 2 * rows * vit.width)


def minimax_m3(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """MiniMax-M3: CLIP's layers over patches of two frames, rotary positions."""
    vit = read_vit(vision, Vit(1280, 5120, 32, 16, 14, 2016))
    yield from layers(vit)
    yield part(vit.embedding(frames=frames(vision), bias=False) + 2 * vit.width)


def muse(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Muse: patches of two frames without bias, a table of positions, norms before and after."""
    vit = read_vit(vision, Vit(1536, 8960, 50, 16, 14))
    frames = vision.count("patch_temporal") or 2
    side = vision.count("pos_emb_height") or 32
    yield from layers(vit)
    yield part(vit.embedding(frames=frames, bias=False) + side * (vision.count("pos_emb_width") or 32) * vit.width)
    yield part(4 * vit.width)


TOWERS: Mapping[str, Tower] = {
    **dict.fromkeys(("siglip", "siglip2", "phi4_multimodal"), siglip_with_head),
    **dict.fromkeys(("minicpmv", "minicpmo", "minicpmv4_6", "minicpmv4_7", "paddleocr_vl"), siglip),
    **dict.fromkeys(("lfm3_vl", "granite_docling"), siglip),
    "idefics2": idefics2,
    **dict.fromkeys(("idefics3", "smolvlm"), idefics),
    "video_llama_3": siglip_without_positions,
    "clip": clip,
    "pixtral": pixtral,
    "llama4": llama4,
    "mllama": mllama,
    **dict.fromkeys(("internvl", "internvl_chat", "intern_vit_6b"), intern_vit),
    "gemma4": gemma4,
    "minimax_m3_vl": minimax_m3,
    "muse_glimmer": muse,
}
"""By `vision_config.model_type` without its tail (_vision, _vision_model, _vision_encoder)."""
