"""Layers that attend to what an encoder produced: encoder-decoders, and decoders with cross-attention layers.

Only the decoder caches: its own tokens, and once for a prompt the K and V of the encoder's outputs.
"""

from __future__ import annotations

from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.errors import BadInput
from kvplan.hf.fields import Fields
from kvplan.hf.heads import Heads, standard
from kvplan.hf.softmax import Layer, attention
from kvplan.hf.windows import FULL

CROSS = "cross_attention"
_ENCODER = (
    "encoder_layers", "encoder_attention_heads", "num_hidden_layers", "num_layers", "num_attention_heads",
    "max_source_positions", "use_bottleneck_adapter", "share_encoder_decoder_embeddings",
)  # fmt: skip
_VISION = {"max_num_tiles": 4, "image_size": 448, "patch_size": 14}
"""Defaults of transformers' MllamaVisionConfig."""
_T5_TOKENS = 512
"""T5's tokenizer and training length where the file states no n_positions; its relative positions set no bound."""


def decoder_layers(fields: Fields) -> list[str]:
    """All decoder layers alike. T5's `num_layers` and BART's `num_hidden_layers` count the *encoder*."""
    count = fields.one_count("num_decoder_layers") or fields.one_count("decoder_layers") or fields.need("num_layers")
    fields.explain(*_ENCODER)
    return [FULL] * count


def _both(heads: Heads, encoder_tokens: int, own: GroupedQueryAttention) -> Layer:
    cross = CrossAttention(
        num_attention_heads=heads.query,
        num_key_value_heads=heads.kv,
        head_dim=heads.dim,
        encoder_tokens=encoder_tokens,
    )
    return (own, cross)


def bart_layer(fields: Fields, _layer: int) -> Layer:
    """BART, mBART, M2M-100, Marian, Pegasus, Whisper: `decoder_attention_heads` over d_model."""
    query = fields.need("decoder_attention_heads")
    hidden = fields.need("hidden_size")
    if hidden % query:
        raise fields.bad("decoder_attention_heads", f"do not divide d_model {hidden}")
    heads = Heads(query, query, hidden // query)
    source = fields.count("max_source_positions") or fields.need("max_position_embeddings")
    return _both(heads, source, attention(fields, heads))


def t5_layer(fields: Fields, _layer: int) -> Layer:
    """T5, mT5, UMT5: num_heads of d_kv, in the encoder and the decoder alike."""
    query = fields.need("num_attention_heads")
    heads = Heads(query, query, fields.need("head_dim"))
    return _both(heads, fields.count("n_positions", _T5_TOKENS) or _T5_TOKENS, attention(fields, heads))


def marked_layers(fields: Fields) -> list[str]:
    """Llama-3.2-Vision: `cross_attention_layers` cache image tokens only; the rest are plain."""
    layers = fields.need_size("num_hidden_layers")
    crossed = fields.indices("cross_attention_layers")
    if crossed is None and fields.nested:
        fields.note("cross_attention_layers is absent: every fifth layer from 3, the default of the transformers class")
        crossed = frozenset(range(3, layers, 5))
    if crossed is None:
        raise fields.bad("cross_attention_layers", "is missing; nothing else says which layers attend to images")
    return [CROSS if i in crossed else FULL for i in range(layers)]


def image_layer(fields: Fields, layer: int) -> Layer:
    """Cross attention to every patch, and one class token, of every tile of an image."""
    if fields.wrapper is None:
        raise BadInput(f"{fields.where}: cross_attention_layers: vision_config, which counts image tokens, is missing")
    section = fields.wrapper.section("vision_config") or Fields({}, fields.where)
    vision = Fields(section.raw, section.where, defaults=_VISION, wrapper=fields.wrapper)
    vision.notes = fields.notes
    side = vision.need_size("image_size") // vision.need_size("patch_size")
    tiles = vision.need_size("max_num_tiles")
    heads = standard(fields, layer)
    cross = CrossAttention(
        num_attention_heads=heads.query,
        num_key_value_heads=heads.kv,
        head_dim=heads.dim,
        encoder_tokens=tiles * (side * side + 1),
    )
    return (cross,)
