"""Encoders of encoder-decoders: layers like the decoder's without cross attention, positions, and their norms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense, stack
from kvplan.matrix import Part
from kvplan.model import ModelSpec, OtherWeight


def _encoder(
    *, positions: int | None = None, embedding_norm: bool = False, final_norm: bool = False
) -> Callable[[Fields, ModelSpec], Iterator[OtherWeight]]:
    """BART's kin. `positions`: rows of a learned table beyond the longest input (None: computed)."""

    def rule(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
        width, longest = spec.hidden_size, fields.need("max_position_embeddings")
        yield from stack(
            "encoder", layers=fields.need("encoder_layers"), width=width, inner=fields.need("encoder_ffn_dim"),
            heads=fields.need("encoder_attention_heads"),
        )  # fmt: skip
        if positions is not None:
            yield OtherWeight(part="encoder", numel=(longest + positions) * width)
        yield OtherWeight(part="encoder", numel=2 * width * (embedding_norm + final_norm))

    return rule


bart_encoder = _encoder(positions=2, embedding_norm=True)
mbart_encoder = _encoder(positions=2, embedding_norm=True, final_norm=True)
marian_encoder = _encoder(positions=0)
pegasus_encoder = _encoder(positions=0, final_norm=True)
m2m_encoder = _encoder(final_norm=True)


def whisper_encoder(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Two convolutions over mel frames, positions of every second frame, layers without a bias on K, a final norm."""
    yield from whisper_stack(
        "encoder", width=spec.hidden_size, layers=fields.need("encoder_layers"), inner=fields.need("encoder_ffn_dim"),
        heads=fields.need("encoder_attention_heads"), mel=fields.count("num_mel_bins") or 80,
        positions=fields.count("max_source_positions") or 1500,
    )  # fmt: skip


def whisper_stack(
    part: Part, *, width: int, layers: int, inner: int, heads: int, mel: int, positions: int
) -> Iterator[OtherWeight]:
    """The encoder of Whisper, which audio models copy. `positions` 0: rows are computed."""
    yield from stack(part, layers=layers, width=width, inner=inner, heads=heads, attention_biases=3)
    convolutions = dense(3 * mel, width) + dense(3 * width, width)
    yield OtherWeight(part=part, numel=convolutions + (positions + 2) * width)


def t5_encoder(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """T5's encoder with its final norm, and the biases by relative position of both sides (UMT5: of every layer)."""
    heads, layers = fields.need("num_attention_heads"), fields.need("num_layers")
    yield from stack(
        "encoder", layers=layers, width=spec.hidden_size, inner=fields.need("d_ff"), heads=heads,
        head_width=heads * fields.need("head_dim"), gated=is_gated(fields), attention_biases=0, mlp_bias=False,
        norm_vectors=1,
    )  # fmt: skip
    yield OtherWeight(part="encoder", numel=spec.hidden_size)
    tables = layers + spec.num_hidden_layers if spec.model_type == "umt5" else 2
    buckets = fields.count("relative_attention_num_buckets") or 32
    yield OtherWeight(part="position", numel=tables * buckets * heads)


def is_gated(fields: Fields) -> bool:
    """T5 1.1 and later: `feed_forward_proj` is gated-gelu."""
    return (fields.text("feed_forward_proj") or "").startswith("gated")
