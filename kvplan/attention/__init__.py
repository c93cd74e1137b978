"""Attention kinds, one file per family; each kind declares its cache tensors.

A kind is a frozen dataclass whose `kind` field names it in YAML. `Attention` is their union.
"""

from __future__ import annotations

from typing import TypeAlias

from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.linear import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Rwkv
from kvplan.attention.mamba import Mamba1, Mamba2, ShortConv
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.attention.none import NoCache, SharedCache

Attention: TypeAlias = (
    GroupedQueryAttention
    | MultiHeadLatentAttention
    | CompressedAttention
    | CrossAttention
    | Mamba1
    | Mamba2
    | ShortConv
    | GatedDeltaNet
    | KimiDeltaAttention
    | LightningAttention
    | Rwkv
    | SharedCache
    | NoCache
)

__all__ = ["Attention"]
