"""Image encoders, by the kind that `vision_config` names: patches, positions, a stack of layers, and built-in mergers.

Sizes and class defaults are those of the transformers 5.24 classes and of the modelling files beside the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense, stack
from kvplan.model import ModelSpec, OtherWeight

MOBILENET_V5 = 294_000_000
"""Parameters of mobilenetv5_300m_enc to three digits; the config names it and gives no sizes."""
Tower = Callable[[Fields, ModelSpec], Iterator[OtherWeight]]


@dataclass(frozen=True, slots=True)
class Vit:
    """Sizes of a vision transformer; an absent key is the default of its class."""

    width: int
    inner: int
    layers: int
    heads: int
    patch: int
    image: int
    channels: int

    @property
    def patches(self) -> int:
        """Patches of a whole image."""
        return (self.image // self.patch) ** 2

    def embedding(self, *, frames: int = 1, bias: bool = True) -> int:
        """The convolution that makes patches of `frames` frames vectors."""
        return dense(self.channels * frames * self.patch**2, self.width, bias=bias)


def read_vit(
    vision: Fields, width: int, inner: int, layers: int, heads: int, patch: int, image: int = 224, *, width_key: str = "hidden_size"
) -> Vit:
    """The sizes of a `vision_config`, with the defaults of its class."""
    return Vit(
        width=vision.count(width_key) or width,
        inner=vision.count("intermediate_size") or inner,
        layers=vision.count("num_hidden_layers") or vision.count("depth") or layers,
        heads=vision.count("num_attention_heads") or heads,
        patch=vision.count("patch_size") or patch,
        image=vision.count("image_size") or image,
        channels=vision.count("num_channels") or vision.count("in_channels") or 3,
    )


def part(numel: int) -> OtherWeight:
    """Elements of the encoder that every rank holds."""
    return OtherWeight(part="vision", numel=numel)


def layers(vit: Vit, **more: int | bool) -> Iterator[OtherWeight]:
    """The encoder's layers; `more` as in `stack`."""
    return stack("vision", layers=vit.layers, width=vit.width, inner=vit.inner, heads=vit.heads, **more)  # type: ignore[arg-type]


def siglip_sizes(vision: Fields) -> Vit:
    """SigLIP's sizes (base, 224 pixels)."""
    return read_vit(vision, 768, 3072, 12, 12, 16)


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
    vit = read_vit(vision, 1152, 3072, 12, 16, 32)
    yield from layers(vit)
    yield part(vit.embedding() + vit.patches * vit.width + 2 * vit.width)


def idefics2(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Idefics 2: SigLIP under other defaults."""
    vit = read_vit(vision, 768, 3072, 12, 12, 32)
    yield from layers(vit)
    yield part(vit.embedding() + vit.patches * vit.width + 2 * vit.width)


def clip(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """CLIP: a class token, patches without bias, positions, norms before and after."""
    vit = read_vit(vision, 768, 3072, 12, 12, 32)
    yield from layers(vit)
    yield part(vit.embedding(bias=False) + (vit.patches + 2) * vit.width + 4 * vit.width)


def pixtral(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Pixtral: gated MLPs, RMS norms, rotary positions, no biases."""
    vit = read_vit(vision, 1024, 4096, 24, 16, 16)
    yield from layers(vit, gated=True, attention_biases=0, mlp_bias=False, norm_vectors=1)
    yield part(vit.embedding(bias=False) + vit.width)


def _frames(vision: Fields) -> int:
    return vision.count("temporal_patch_size") or 2


def _merge(vision: Fields) -> int:
    """Patches that a merger folds into one vector."""
    return (vision.count("spatial_merge_size") or 2) ** 2


def qwen2_vl(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen2-VL: `embed_dim` wide, LayerNorms, a merger to `hidden_size`."""
    vit = read_vit(vision, 1280, 5120, 32, 16, 14, width_key="embed_dim")
    out, folded = vision.count("hidden_size") or 3584, _merge(vision) * vit.width
    inner = int((vision.number("mlp_ratio") or 4) * vit.width)
    yield from stack("vision", layers=vit.layers, width=vit.width, inner=inner, heads=vit.heads)
    yield part(vit.embedding(frames=_frames(vision), bias=False) + 2 * vit.width)
    yield part(dense(folded, folded) + dense(folded, out))


def qwen2_5_vl(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen2.5-VL: RMS norms and gated MLPs with biases."""
    vit = read_vit(vision, 3584, 3420, 32, 16, 14)
    out, folded = vision.count("out_hidden_size") or 3584, _merge(vision) * vit.width
    yield from layers(vit, gated=True, norm_vectors=1)
    yield part(vit.embedding(frames=_frames(vision), bias=False) + vit.width)
    yield part(dense(folded, folded) + dense(folded, out))


def qwen3_vl(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen3-VL, 3.5, 3-Omni: a table of positions, and one more merger for each layer that feeds the decoder deep."""
    vit = read_vit(vision, 1152, 4304, 27, 16, 16)
    out, folded = vision.count("out_hidden_size") or 3584, _merge(vision) * vit.width
    merger = dense(folded, folded) + dense(folded, out)
    deep = vision.sequence("deepstack_visual_indexes")
    yield from layers(vit)
    positions = (vision.count("num_position_embeddings") or 2304) * vit.width
    yield part(vit.embedding(frames=_frames(vision)) + positions + 2 * vit.width + merger)
    yield part((3 if deep is None else len(deep)) * (merger + 2 * folded))


def qwen3_5(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Qwen3.5: Qwen3-VL's, which feeds the decoder deep only where the file says so."""
    deep = vision.sequence("deepstack_visual_indexes") or []
    return qwen3_vl(vision.overlaid({"deepstack_visual_indexes": deep}), spec)


def glm4v(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """GLM-4.1V to 4.6V: blocks as wide inside as the output, a strided convolution, a gated merger."""
    vit = read_vit(vision, 1536, 13696, 24, 12, 14, 336)
    out = vision.count("out_hidden_size") or 4096
    yield from stack(
        "vision", layers=vit.layers, width=vit.width, inner=out, heads=vit.heads, gated=True, norm_vectors=1,
        attention_biases=3 * vision.flag("attention_bias"), mlp_bias=False,
    )  # fmt: skip
    yield part(vit.embedding(frames=_frames(vision)) + (vit.patches + 2) * vit.width)
    yield part(_glm_merger(vision, vit, out, vit.inner))


def glm_ocr(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """GLM-OCR and GLM-5.3: rotary positions, norms on the heads of Q and K, biases."""
    vit = read_vit(vision, 1024, 4096, 24, 16, 14, 336)
    out, biased = vision.count("out_hidden_size") or 1536, vision.flag("attention_bias", True)
    yield from layers(
        vit, gated=True, norm_vectors=1, attention_biases=4 * biased, mlp_bias=biased, more=2 * (vit.width // vit.heads)
    )  # fmt: skip
    yield part(vit.embedding(frames=_frames(vision)) + vit.width)
    yield part(_glm_merger(vision, vit, out, vision.count("projection_intermediate_size") or out * vit.channels))


def _glm_merger(vision: Fields, vit: Vit, out: int, inner: int) -> int:
    downsample = dense(_merge(vision) * vit.width, out)
    return downsample + out * out + 2 * out + 3 * out * inner


def llama4(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Llama 4: CLIP-like, then pixel shuffle and two layers of an adapter without biases."""
    vit = read_vit(vision, 768, 5632, 34, 16, 14, 448)
    inputs, outputs = vision.count("projector_input_dim") or 4096, vision.count("projector_output_dim") or 4096
    yield from layers(vit)
    yield part(vit.embedding(bias=False) + (vit.patches + 2) * vit.width + 4 * vit.width)
    yield part(vit.inner * inputs + outputs * outputs)


def mllama(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Llama-3.2-Vision: local and gated global layers, positions of tiles of every aspect ratio."""
    vit = read_vit(vision, 1280, 5120, 32, 16, 14, 448)
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
    vit = read_vit(vision, 1024, 4096, 24, 16, 14, 448)
    biased = vision.flag("qkv_bias", vision.flag("attention_bias"))
    normed = vision.flag("qk_normalization", vision.flag("use_qk_norm"))
    vectors = 1 if vision.text("norm_type") == "rms_norm" else 2
    yield from layers(
        vit, attention_biases=1 + 3 * biased, norm_vectors=vectors, more=(2 + 2 * normed) * vit.width
    )  # fmt: skip
    yield part(vit.embedding() + (vit.patches + 2) * vit.width)


def gemma4(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Gemma 4: the decoder's block (four norms, head norms), positions by row and by column."""
    vit = read_vit(vision, 768, 3072, 16, 12, 16)
    dim = vision.count("head_dim") or vit.width // vit.heads
    yield from layers(vit, gated=True, attention_biases=0, mlp_bias=False, norms=4, norm_vectors=1, more=2 * dim)
    rows = vision.count("position_embedding_size") or 10240
    yield part(vit.embedding(bias=False) + 2 * rows * vit.width)


def minimax_m3(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """MiniMax-M3: CLIP's layers over patches of two frames, rotary positions."""
    vit = read_vit(vision, 1280, 5120, 32, 16, 14, 2016)
    yield from layers(vit)
    yield part(vit.embedding(frames=_frames(vision), bias=False) + 2 * vit.width)


def muse(vision: Fields, _spec: ModelSpec) -> Iterator[OtherWeight]:
    """Muse: patches of two frames without bias, a table of positions, norms before and after."""
    vit = read_vit(vision, 1536, 8960, 50, 16, 14)
    frames = vision.count("patch_temporal") or 2
    side = vision.count("pos_emb_height") or 32
    yield from layers(vit)
    yield part(vit.embedding(frames=frames, bias=False) + side * (vision.count("pos_emb_width") or 32) * vit.width)
    yield part(4 * vit.width)


_MOON_NAMES = {
    "hidden_size": "vt_hidden_size", "intermediate_size": "vt_intermediate_size",
    "num_hidden_layers": "vt_num_hidden_layers", "num_attention_heads": "vt_num_attention_heads",
}  # fmt: skip


def moonvit(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """MoonViT (Kimi-VL, K2.5, K3): learned positions of a grid, and a projector that folds four patches."""
    raw = vision.raw
    vision = vision.overlaid({new: raw[old] for new, old in _MOON_NAMES.items() if raw.get(old) is not None})
    vit = read_vit(vision, 1152, 4304, 27, 16, 14)
    grid = (vision.count("init_pos_emb_height") or 64) * (vision.count("init_pos_emb_width") or 64)
    vectors, folded = 1 if vision.text("norm_type") == "rmsnorm" else 2, 4 * vit.width
    yield from stack(
        "vision", layers=vit.layers, width=vit.width, inner=vit.inner, heads=vit.heads, norm_vectors=vectors,
        head_width=vision.count("qkv_hidden_size"), attention_biases=4 * vision.flag("attn_bias", True),
        mlp_bias=vision.flag("linear_bias", True),
    )  # fmt: skip
    yield part(vit.embedding(bias=vision.flag("patch_embed_proj_bias", True)) + (grid + vectors) * vit.width)
    yield part(2 * vit.width + dense(folded, folded) + dense(folded, spec.hidden_size))


def mobilenet_v5(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Gemma 3n: a convolutional encoder of fixed sizes (timm's mobilenetv5_300m_enc), marks, norms and a matrix."""
    width = vision.count("hidden_size") or 2048
    yield part(MOBILENET_V5 + ((vision.count("vocab_size") or 128) + 2 + spec.hidden_size) * width)


def ernie(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """ERNIE-VL: a plain ViT, and a resampler that folds space and then time."""
    vit = read_vit(vision, 1280, 5120, 32, 16, 14)
    folded, frames = _merge(vision) * vit.width, vision.count("temporal_merge_size") or 2
    yield from layers(vit)
    yield part(vit.embedding(bias=False) + 2 * vit.width)
    yield part(3 * dense(folded, folded) + dense(frames * folded, folded) + 4 * folded)
    yield part(dense(folded, spec.hidden_size) + spec.hidden_size)


def step(vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Step 3.7: scaled residuals, two strided convolutions, a projection without bias."""
    vit = read_vit(vision, 1536, 8960, 47, 16, 14, 728)
    yield from layers(vit, more=2 * vit.width)
    yield part(vit.embedding(bias=False) + vit.patches * vit.width + 2 * vit.width)
    yield part(dense(9 * vit.width, 2 * vit.width) + dense(18 * vit.width, 4 * vit.width))
    yield part(4 * vit.width * spec.hidden_size)


TOWERS: Mapping[str, Tower] = {
    **dict.fromkeys(("siglip", "siglip2", "phi4_multimodal"), siglip_with_head),
    **dict.fromkeys(("minicpmv", "minicpmo", "minicpmv4_6", "minicpmv4_7", "paddleocr_vl"), siglip),
    **dict.fromkeys(("lfm3_vl", "granite_docling"), siglip),
    **dict.fromkeys(("idefics3", "smolvlm"), idefics),
    "idefics2": idefics2,
    "video_llama_3": siglip_without_positions,
    "clip": clip,
    "pixtral": pixtral,
    "qwen2_vl": qwen2_vl,
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_omni"), qwen2_5_vl),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe"), qwen3_vl),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), qwen3_5),
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v"), glm4v),
    **dict.fromkeys(("glm_ocr", "glm5_next"), glm_ocr),
    "llama4": llama4,
    "mllama": mllama,
    **dict.fromkeys(("internvl", "internvl_chat", "intern_vit_6b"), intern_vit),
    "gemma4": gemma4,
    "gemma3n": mobilenet_v5,
    "minimax_m3_vl": minimax_m3,
    "muse_glimmer": muse,
    **dict.fromkeys(("moonvit", "kimi_k25", "kimi_vl", "kimi_k3"), moonvit),
    "ernie4_5_vl_moe": ernie,
    **dict.fromkeys(("step3p5", "step3p7"), step),
}
"""By `vision_config.model_type` without its tail (_vision, _vision_model, _vision_encoder)."""
OWN_CLASSES = frozenset({"minicpmv", "minicpmo", "minimax_m3_vl", "internvl_chat", "kimi_vl"})
"""Wrappers whose encoder is their own class, though the file calls it siglip_vision_model or clip_vision_model."""
WITH_PROJECTOR = frozenset({qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_5, glm4v, glm_ocr, moonvit, ernie, step, mobilenet_v5})
"""Towers that end in the decoder's width."""
