"""Bytes of one token, and of one recurrent state, of one layer on one rank.

They come from the attention kind's own cache tensors and from `kvplan.storage`; what is vLLM's are the roundings, the
forms that a kernel gives a record, and the columns of drafted tokens. Sources: `get_kv_cache_spec` of the layers and
`layers/mamba/mamba_utils.py` (0.33).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.arith import cdiv, round_up
from kvplan.attention.linear import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Rwkv
from kvplan.attention.mamba import Mamba1, Mamba2, ShortConv
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.errors import Unsupported
from kvplan.storage import FP32

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.cache import CacheTensor
    from kvplan.engines.vllm.formats import KvDtype
    from kvplan.engines.vllm.versions import Rules
    from kvplan.storage import Role, Storage

_CONVOLVED = Mamba1 | Mamba2 | ShortConv | GatedDeltaNet | KimiDeltaAttention
_PADDED_HEAD_DIM, _ROW_BYTES = 256, 256
"""What the first MLA models cached: heads of K and V padded to 256; then records in rows of 256 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """What sizes a layer's cache on one rank: release, ranks that share heads, dtypes, drafted tokens, state mode.

    `major`: of the compute capability, 0 for none. `recurrent`: None where the kind of state decides.
    """

    rules: Rules
    major: int
    tp: int
    own: KvDtype
    conv: Storage
    recurrent: Storage | None
    drafts: int
    state_mode: str


def role_bytes(tensors: tuple[CacheTensor, ...], kv: KvDtype, tp: int, *roles: Role) -> int:
    """Bytes of one slot of the tensors that play these roles."""
    return sum(t.bytes_per_slot(kv.format, tp) for t in tensors if t.role in roles)


def token_bytes(attention: Attention, kv: KvDtype, rank: Rank) -> int:
    """Bytes of one token of attention (not of an indexer) on this rank: K and V, or the latent with its rotary key."""
    if isinstance(attention, MultiHeadLatentAttention):
        return _latent_bytes(attention, kv, rank)
    tensors = attention.tensors()
    if kv.even_slots:
        heads = tensors[0].heads
        return cdiv(heads, rank.tp) * round_up(role_bytes(tensors, kv, heads, "k", "v"), 2)
    return role_bytes(tensors, kv, rank.tp, "k", "v")


def _latent_bytes(attention: MultiHeadLatentAttention, kv: KvDtype, rank: Rank) -> int:
    if rank.rules.mla_cache == "padded heads":
        return 2 * cdiv(attention.num_attention_heads, rank.tp) * kv.format.default.vector_bytes(_PADDED_HEAD_DIM)
    own = role_bytes(attention.tensors(), kv, rank.tp, "latent", "rope")
    return round_up(own, _ROW_BYTES) if rank.rules.mla_cache == "latent, rows of 256 B" else own


def unpacked_bytes(attention: Attention, rank: Rank) -> int:
    """K and V at one byte an element: what a backend that does not know a packing takes a quantized token for."""
    return sum(cdiv(t.heads, rank.tp) * t.dim for t in attention.tensors() if t.role in ("k", "v"))


def state_page_bytes(attention: Attention, rank: Rank) -> int:
    """A layer's whole recurrent state on this rank; drafted tokens add columns to its convolution, but for Mamba-1."""
    if isinstance(attention, Rwkv):
        raise Unsupported(f"vLLM {rank.rules.version}: runs no RWKV models")
    return sum(_state_tensor_bytes(attention, t, rank) for t in attention.tensors())


def _state_tensor_bytes(attention: Attention, tensor: CacheTensor, rank: Rank) -> int:
    elements = cdiv(tensor.heads, rank.tp) * tensor.dim
    if tensor.role == "conv_state" and isinstance(attention, _CONVOLVED):
        columns = attention.conv_kernel - 1
        drafted = 0 if isinstance(attention, Mamba1) else rank.drafts
        return rank.conv.vector_bytes(elements // max(columns, 1) * (columns + drafted))
    return recurrent_storage(attention, rank).vector_bytes(elements)


def recurrent_storage(attention: Attention, rank: Rank) -> Storage:
    """How a kind keeps its recurrent state: lightning attention and Kimi's as they please, others as flags say."""
    if isinstance(attention, LightningAttention):
        return rank.conv
    return rank.recurrent or (FP32 if isinstance(attention, KimiDeltaAttention) else rank.conv)


def checkpoint_tokens(attention: Attention, rank: Rank) -> int:
    """Tokens between the states that a prefill can export midway: FlashInfer's GDN kernel, where vLLM picks it; else 1.

    Hopper, and data-centre or desktop Blackwell with keys of 128 (`_resolve_gdn_prefill_backend`).
    """
    if not (rank.rules.gdn_checkpoint and rank.state_mode == "align" and isinstance(attention, GatedDeltaNet)):
        return 1
    flashinfer = rank.major == 9 or (rank.major in {10, 12} and attention.key_head_dim == 128)
    return 64 if flashinfer else 1
