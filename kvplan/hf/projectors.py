"""What stands between an image encoder and the decoder, by the wrapper's model_type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense
from kvplan.hf.vision import siglip_sizes
from kvplan.hf.vit import merged_patches, part
from kvplan.mlp import DenseMlp
from kvplan.model import ModelSpec, OtherWeight

Projector = Callable[[Fields, Fields, ModelSpec], Iterator[OtherWeight]]
"""Of the whole config, its vision_config and the spec of the decoder."""


def _width(vision: Fields, default: int = 1024) -> int:
    return vision.count("hidden_size") or default


def _features(top: Fields) -> int:
    """How many layers of the encoder are read side by side."""
    chosen = top.value("vision_feature_layer")
    return len(chosen) if isinstance(chosen, list) else 1


def llava(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Two dense layers to the decoder's width."""
    bias = top.flag("multimodal_projector_bias", True)
    inputs = _features(top) * _width(vision)
    yield part(dense(inputs, spec.hidden_size, bias=bias) + dense(spec.hidden_size, spec.hidden_size, bias=bias))


def llava_next(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """LLaVA's, and a learned vector for a new line of tiles."""
    yield from llava(top, vision, spec)
    yield part(spec.hidden_size)


def vipllava(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Several layers of the encoder side by side, under a norm."""
    layers = top.value("vision_feature_layers")
    inputs = (len(layers) if isinstance(layers, list) else 5) * _width(vision)
    yield part(2 * inputs + dense(inputs, spec.hidden_size) + dense(spec.hidden_size, spec.hidden_size))


def mistral3(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A norm, a fold of neighbouring patches, two dense layers."""
    width, hidden = _width(vision), spec.hidden_size
    bias, fold = top.flag("multimodal_projector_bias"), (top.count("spatial_merge_size") or 2) ** 2
    yield part(width + fold * width * width)
    yield part(dense(_features(top) * width, hidden, bias=bias) + dense(hidden, hidden, bias=bias))


def gemma3(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A norm and a matrix."""
    yield part(_width(vision, 768) * (spec.hidden_size + 1))


def paligemma(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """One dense layer."""
    yield part(dense(_width(vision, 768), spec.hidden_size))


def gemma4(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A matrix under a norm without weights."""
    yield part(_width(vision, 768) * spec.hidden_size)


def idefics3(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Pixel shuffle and a matrix."""
    yield part((top.count("scale_factor") or 2) ** 2 * _width(vision, 1152) * spec.hidden_size)


def idefics2(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A gated MLP, and a perceiver that resamples to `resampler_n_latents` vectors."""
    own = top.section("perceiver_config") or Fields({}, top.where)
    hidden, width = spec.hidden_size, _width(vision, 768)
    heads, dim = own.count("resampler_n_heads") or 16, own.count("resampler_head_dim") or 96
    keys = (own.count("num_key_value_heads") or 4) * dim
    layer = 2 * hidden * (heads * dim + keys) + 12 * hidden * hidden + 3 * hidden
    inner = next((g.mlp.intermediate_size for g in spec.layer_groups if isinstance(g.mlp, DenseMlp)), 14336)
    yield part(inner * (2 * width + hidden) + ((own.count("resampler_n_latents") or 64) + 1) * hidden)
    yield part((own.count("resampler_depth") or 3) * layer)


def internvl(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Pixel shuffle of four, a norm, two dense layers."""
    folded = 4 * _width(vision)
    yield part(2 * folded + dense(folded, spec.hidden_size) + dense(spec.hidden_size, spec.hidden_size))


def lfm2_vl(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Pixel unshuffle, maybe a norm, two dense layers through `projector_hidden_size`."""
    folded = (top.count("downsample_factor") or 2) ** 2 * _width(vision, 768)
    inner, bias = top.count("projector_hidden_size") or 2560, top.flag("projector_bias", True)
    yield part(2 * folded * top.flag("projector_use_layernorm", True))
    yield part(dense(folded, inner, bias=bias) + dense(inner, spec.hidden_size, bias=bias))


def cohere2_vision(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Pixel shuffle and a gated pair of dense layers."""
    folded = (top.count("downsample_factor") or 2) ** 2 * _width(vision, 1152)
    inner = top.count("alignment_intermediate_size") or 36864
    yield part(dense(folded, inner) + dense(inner // 2, spec.hidden_size))


def aya_vision(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """As Cohere's, under a norm, and as wide as the decoder unless the file says otherwise."""
    folded = (top.count("downsample_factor") or 2) ** 2 * _width(vision, 1152)
    inner = top.count("alignment_intermediate_size") or spec.hidden_size
    yield part(2 * folded + dense(folded, inner) + dense(inner // 2, spec.hidden_size))


def llama4(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """One matrix."""
    yield part((vision.count("vision_output_dim") or 7680) * spec.hidden_size)


def mllama(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """One dense layer from the outputs of several layers."""
    yield part(dense(vision.count("vision_output_dim") or 7680, spec.hidden_size))


def minicpmv(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A resampler: learned queries attend to the patches once."""
    hidden, queries = spec.hidden_size, top.count("query_num") or 64
    yield part(queries * hidden + _width(vision, 1152) * hidden + 4 * dense(hidden, hidden) + 6 * hidden + hidden**2)


def minicpmv4_6(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A merger inside the encoder (attention, then a fold of four), and `merger_times` folds after it."""
    vit, hidden = siglip_sizes(vision), spec.hidden_size
    folded, inner = 4 * vit.width, 4 * vit.inner
    yield part(4 * dense(vit.width, vit.width) + 2 * vit.width + 2 * folded)
    yield part(dense(folded, inner) + dense(inner, vit.width))
    times = top.count("merger_times") or 1
    yield part(times * (2 * folded + dense(folded, folded)) + (times - 1) * dense(folded, vit.width))
    yield part(dense(folded, hidden))


def paddleocr_vl(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """A norm, a fold of four, two dense layers."""
    width = _width(vision, 1152)
    yield part(2 * width + dense(4 * width, 4 * width) + dense(4 * width, spec.hidden_size))


def video_llama_3(_top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Two dense layers."""
    yield part(dense(_width(vision, 768), spec.hidden_size) + dense(spec.hidden_size, spec.hidden_size))


def minimax_m3(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Two dense layers for each patch, then two for each fold of four."""
    hidden, inner = spec.hidden_size, top.count("projector_hidden_size") or spec.hidden_size
    yield part(dense(_width(vision, 1280), inner) + dense(inner, hidden))
    yield part(dense(merged_patches(vision) * hidden, inner) + dense(inner, hidden))


def muse(top: Fields, vision: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """An adapter of two matrices and a projection."""
    inner, fold = top.count("projector_hidden_size") or 4096, (vision.count("merge_size") or 2) ** 2
    yield part(fold * _width(vision, 1536) * inner + inner * inner + inner * spec.hidden_size)


PROJECTORS: Mapping[str, Projector] = {
    "llava": llava,
    **dict.fromkeys(("llava_next", "llava_next_video", "llava_onevision"), llava_next),
    "vipllava": vipllava,
    "mistral3": mistral3,
    **dict.fromkeys(("gemma3", "shieldgemma2"), gemma3),
    "paligemma": paligemma,
    **dict.fromkeys(("gemma4", "gemma4_unified"), gemma4),
    **dict.fromkeys(("idefics3", "smolvlm"), idefics3),
    "idefics2": idefics2,
    **dict.fromkeys(("internvl", "internvl_chat"), internvl),
    "lfm2_vl": lfm2_vl,
    "cohere2_vision": cohere2_vision,
    "aya_vision": aya_vision,
    "llama4": llama4,
    "mllama": mllama,
    **dict.fromkeys(("minicpmv", "minicpmo"), minicpmv),
    **dict.fromkeys(("minicpmv4_6", "minicpmv4_7"), minicpmv4_6),
    "paddleocr_vl": paddleocr_vl,
    "video_llama_3": video_llama_3,
    "minimax_m3_vl": minimax_m3,
    "muse_glimmer": muse,
}
