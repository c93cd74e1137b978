"""What a cut of the cache follows from, beside the model's layers; and what follows from it for one layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvplan.arith import cdiv
from kvplan.attention.compressed import CompressedAttention
from kvplan.attention.cross import CrossAttention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.vllm.backends import Backend, Need, choose, compressed_backend, different_values
from kvplan.engines.vllm.mixers import Mixer, window_of
from kvplan.engines.vllm.sizes import Rank
from kvplan.storage import TORCH_DTYPES

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.engines.vllm.formats import KvDtype
    from kvplan.engines.vllm.versions import Rules
    from kvplan.parallel import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Nothing here depends on the context length, the batch or the size of the pool. Cheap to hash.

    `own`: the model's dtype; `conv` and `recurrent`: torch names of the states' dtypes, None where the kind decides.
    `drafts`: speculated tokens. `block_size`, `chunk_tokens`, `attention_backend`: None where the engine decides.
    `skip_layers`: layers that stay unquantized, by index or kind.
    """

    rules: Rules = field(hash=False)
    release: tuple[int, int]
    capability: tuple[int, int] | None
    parallel: Parallelism
    kv: KvDtype
    own: KvDtype
    conv: str
    recurrent: str | None
    drafts: int
    state_mode: str
    block_size: int | None
    chunk_tokens: int | None
    attention_backend: str | None
    skip_layers: frozenset[str]
    hybrid_manager: bool

    @property
    def major(self) -> int:
        """Compute capability, major part; 0 for none."""
        return self.capability[0] if self.capability else 0

    def rank(self) -> Rank:
        """What sizes one layer on one rank."""
        return Rank(
            rules=self.rules,
            major=self.major,
            tp=self.parallel.tp,
            own=self.own,
            conv=TORCH_DTYPES[self.conv],
            recurrent=TORCH_DTYPES[self.recurrent] if self.recurrent else None,
            drafts=self.drafts,
            state_mode=self.state_mode,
        )

    def asked_kv(self, mixer: Mixer) -> KvDtype:
        """The KV dtype of one layer: the model's own where it is skipped."""
        skip = self.skip_layers
        if not skip or mixer.draft:
            return self.kv
        skipped = str(mixer.index) in skip or ("sliding_window" in skip and window_of(mixer.attention) > 0)
        return self.own if skipped else self.kv

    def backend(self, attention: Attention, kv: KvDtype) -> Backend | None:
        """The backend that serves a layer; None for a state."""
        if isinstance(attention, CompressedAttention):
            return compressed_backend(self.attention_backend, kv, self.major, self.block_size)
        if isinstance(attention, MultiHeadLatentAttention):
            return choose(self._latent_need(attention, kv), self.attention_backend, self.block_size)
        if isinstance(attention, GroupedQueryAttention) and attention.v_head_dim not in {None, attention.head_dim}:
            return different_values(kv, self.major)
        if isinstance(attention, GroupedQueryAttention | CrossAttention):
            return choose(self._heads_need(attention, kv), self.attention_backend, self.block_size)
        return None

    def _latent_need(self, attention: MultiHeadLatentAttention, kv: KvDtype) -> Need:
        return Need(
            release=self.release,
            kv_dtype=kv.name,
            capability=self.capability,
            head_size=attention.kv_lora_rank + attention.qk_rope_head_dim,
            latent=True,
            sparse=bool(attention.index_topk),
            heads=cdiv(attention.num_attention_heads, self.parallel.tp),
            nope_head_dim=attention.qk_nope_head_dim,
            dcp=self.parallel.dcp,
        )

    def _heads_need(self, attention: GroupedQueryAttention | CrossAttention, kv: KvDtype) -> Need:
        return Need(
            release=self.release,
            kv_dtype=kv.name,
            capability=self.capability,
            head_size=attention.head_dim,
            sinks=isinstance(attention, GroupedQueryAttention) and attention.sinks,
            window=window_of(attention) > 0,
            heads=cdiv(attention.num_attention_heads, self.parallel.tp),
            grouped=attention.num_attention_heads > attention.num_key_value_heads,
            dcp=self.parallel.dcp,
        )
