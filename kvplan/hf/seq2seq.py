"""Encoders of encoder-decoders: layers like the decoder's without cross attention, positions, and their norms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.hf.fields import Fields
from kvplan.hf.stacks import dense, stack
from kvplan.matrix import Part
from kvplan.mlp import DenseMlp
from kvplan.model import ModelSpec, OtherWeight


def _sides(fields: Fields, spec: ModelSpec) -> tuple[int, int, int]:
    """Layers, MLP width and heads of the encoder; what the file leaves out is as in the decoder, with a note."""
    sizes = [
        fields.count("encoder_layers"), fields.one_count("encoder_ffn_dim"), fields.count("encoder_attention_heads")
    ]  # fmt: skip
    if None in sizes:
        fields.note("sizes of the encoder are absent: those of the decoder")
    heads = next((a.num_attention_heads for _, a in spec.mixers() if isinstance(a, GroupedQueryAttention)), 1)
    layers, width, queries = sizes
    return layers or spec.num_hidden_layers, width or _inner(spec), queries or heads


def _inner(spec: ModelSpec) -> int:
    """The width of the decoder's MLPs."""
    return next((g.mlp.intermediate_size for g in spec.layer_groups if isinstance(g.mlp, DenseMlp)), 0)


def _encoder(
    *, positions: int | None = None, embedding_norm: bool = False, final_norm: bool = False
) -> Callable[[Fields, ModelSpec], Iterator[OtherWeight]]:
    """BART's kin. `positions`: rows of a learned table beyond the longest input (None: computed)."""

    def rule(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
        width, (layers, inner, heads) = spec.hidden_size, _sides(fields, spec)
        yield from stack("encoder", layers=layers, width=width, inner=inner, heads=heads)
        if positions is not None and spec.max_position_embeddings:
            yield OtherWeight(part="encoder", numel=(spec.max_position_embeddings + positions) * width)
        yield OtherWeight(part="encoder", numel=2 * width * (embedding_norm + final_norm))

    return rule


bart_encoder = _encoder(positions=2, embedding_norm=True)
mbart_encoder = _encoder(positions=2, embedding_norm=True, final_norm=True)
marian_encoder = _encoder(positions=0)
pegasus_encoder = _encoder(positions=0, final_norm=True)
m2m_encoder = _encoder(final_norm=True)


def whisper_encoder(fields: Fields, spec: ModelSpec) -> Iterator[OtherWeight]:
    """Two convolutions over mel frames, positions of every second frame, layers without a bias on K, a final norm."""
    layers, inner, heads = _sides(fields, spec)
    yield from whisper_stack(
        "encoder", width=spec.hidden_size, layers=layers, inner=inner, heads=heads,
        mel=fields.count("num_mel_bins") or 80, positions=fields.one_count("max_source_positions") or 1500,
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
    own = next(a for _, a in spec.mixers() if isinstance(a, GroupedQueryAttention))
    layers, heads = fields.one_count("num_layers") or spec.num_hidden_layers, own.num_attention_heads
    yield from stack(
        "encoder", layers=layers, width=spec.hidden_size, inner=_inner(spec), heads=heads,
        head_width=heads * own.head_dim, gated=is_gated(fields), attention_biases=0, mlp_bias=False, norm_vectors=1,
    )  # fmt: skip
    yield OtherWeight(part="encoder", numel=spec.hidden_size)
    tables = layers + spec.num_hidden_layers if spec.model_type == "umt5" else 2
    buckets = fields.count("relative_attention_num_buckets") or 32
    yield OtherWeight(part="position", numel=tables * buckets * heads)


def is_gated(fields: Fields) -> bool:
    """T5 1.1 and later: `feed_forward_proj` is gated-gelu."""
    return (fields.text("feed_forward_proj") or "").startswith("gated")
