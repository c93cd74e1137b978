"""The multi-token prediction module: extra layers beyond the decoder, which cost cache only when speculation is on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.hf import patterns
from kvplan.hf.fields import Fields
from kvplan.hf.softmax import Layer

_COUNTS = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers")


def mtp_layers(fields: Fields, layers: Sequence[Layer]) -> list[Layer]:
    """What each layer of the module runs: the model's last attending kind.

    An indexed layer has an indexer of its own there (index_share_for_mtp_iteration reuses it between iterations only);
    DeepSeek-V4's module keeps the window alone. `mtp_hybrid_override_pattern` spells a Nemotron-H module.
    """
    fields.explain("mtp_layers_block_type", "mtp_hybrid_override_pattern", "mtp_layer_types", "mtp_mlp_layer_types")
    modules = next((n for key in _COUNTS if (n := fields.count(key, least=0))), 0)
    attending = next((a for a in reversed(layers) if _attends(a)), None)
    if not modules or attending is None:
        return []
    per_module = fields.count("mtp_transformer_layers", 1) or 1
    return [_alone(attending)] * (modules * _attention_blocks(fields) * per_module)


def _attention_blocks(fields: Fields) -> int:
    """Attention layers of one module: of a spelled-out module only its attention blocks."""
    words = fields.sequence("mtp_layers_block_type")
    pattern = fields.text("mtp_hybrid_override_pattern")
    if words is None and pattern:
        words = patterns.letters(pattern, fields, "mtp_hybrid_override_pattern")
    return 1 if words is None else sum(w in ("attention", "full_attention", "sliding_attention") for w in words)


def _attends(layer: Layer) -> bool:
    return any(a.family not in ("recurrent", "none", "cross") for a in layer)


def _alone(layer: Layer) -> Layer:
    first = next(a for a in layer if a.family not in ("recurrent", "none", "cross"))
    if isinstance(first, MultiHeadLatentAttention):
        return (replace(first, shares_index=False),)
    if isinstance(first, CompressedAttention):
        return (
            replace(
                first,
                compress_ratio=0,
                compressor_overlap=False,
                owns_entries=True,
                index_head_dim=None,
                index_n_heads=None,
                index_topk=None,
                index_from_latent=False,
            ),
        )
    return (first,)
