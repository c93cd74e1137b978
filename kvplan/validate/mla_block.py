"""The whole MLA attention block in decode, in restored and in absorbed form (arXiv 2405.04434, section 2.1).

Restored: K and V of every head are computed from the cached latent, then ordinary attention. Absorbed: W_UK moves
into the query and W_UV behind the attention, so that the latent itself is key and value. Both read the same cache:
the latent *after* its RMSNorm, and the rotated key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.validate.reference import grouped_attention, latent_attention
from kvplan.validate.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaWeights:
    """Weights under HF's names, each [out, in] as torch's Linear holds it.

    q_a_proj [q_lora_rank, hidden], q_b_proj [heads x (nope + rope), q_lora_rank], kv_a_proj_with_mqa
    [kv_lora_rank + rope, hidden], kv_b_proj [heads x (nope + v), kv_lora_rank], o_proj [hidden, heads x v]; the two
    norms are vectors. A model without query compression has its query projection in `q_b_proj` and None in `q_a_*`.
    """

    q_a_proj: Tensor | None
    q_a_layernorm: Tensor | None
    q_b_proj: Tensor
    kv_a_proj_with_mqa: Tensor
    kv_a_layernorm: Tensor
    kv_b_proj: Tensor
    o_proj: Tensor

    @classmethod
    def random(
        cls, attention: MultiHeadLatentAttention, hidden_size: int, *, seed: int, dtype: torch.dtype
    ) -> MlaWeights:
        """Normal weights of standard deviation 1 / sqrt(in), and norms around 1."""
        generator = torch.Generator().manual_seed(seed)
        a, heads = attention, attention.num_attention_heads

        def matrix(out: int, into: int) -> Tensor:
            return torch.randn(out, into, generator=generator, dtype=dtype) / math.sqrt(into)

        def norm(dim: int) -> Tensor:
            return 1 + 0.1 * torch.randn(dim, generator=generator, dtype=dtype)

        rank = a.q_lora_rank
        return cls(
            q_a_proj=matrix(rank, hidden_size) if rank else None,
            q_a_layernorm=norm(rank) if rank else None,
            q_b_proj=matrix(heads * (a.qk_nope_head_dim + a.qk_rope_head_dim), rank or hidden_size),
            kv_a_proj_with_mqa=matrix(a.kv_lora_rank + a.qk_rope_head_dim, hidden_size),
            kv_a_layernorm=norm(a.kv_lora_rank),
            kv_b_proj=matrix(heads * (a.qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank),
            o_proj=matrix(hidden_size, heads * a.v_head_dim),
        )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps), times the weight."""
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaBlock:
    """One MLA layer. Activations are [batch, tokens, hidden], positions [batch, tokens]."""

    attention: MultiHeadLatentAttention
    weights: MlaWeights
    rope: Rope
    rms_norm_eps: float = 1e-6

    @property
    def softmax_scale(self) -> float:
        """1 / sqrt of the restored head (nope + rope, not latent + rope), with YaRN's temperature."""
        head_dim = self.attention.qk_nope_head_dim + self.attention.qk_rope_head_dim
        return self.rope.softmax_gain / math.sqrt(head_dim)

    @property
    def _cached_dims(self) -> list[int]:
        return [self.attention.kv_lora_rank, self.attention.qk_rope_head_dim]

    def compress(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """What is cached for each token: normalised latent, then rotated key [batch, tokens, latent + rope]."""
        down = linear(hidden, self.weights.kv_a_proj_with_mqa)
        latent, rope_key = torch.split(down, self._cached_dims, -1)
        return torch.cat([self.normalise_latent(latent), self.rotate(rope_key, positions)], -1)

    def normalise_latent(self, latent: Tensor) -> Tensor:
        """RMSNorm before caching."""
        return rms_norm(latent, self.weights.kv_a_layernorm, self.rms_norm_eps)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary position embedding of the decoupled part."""
        return self.rope.rotate(x, positions)

    def project_query(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Content part [batch, tokens, heads, nope] and rotated part [batch, tokens, heads, rope]."""
        a, w = self.attention, self.weights
        if w.q_a_proj is not None and w.q_a_layernorm is not None:
            hidden = rms_norm(linear(hidden, w.q_a_proj), w.q_a_layernorm, self.rms_norm_eps)
        query = torch.unflatten(linear(hidden, w.q_b_proj), -1, (a.num_attention_heads, -1))
        content, rotary = torch.split(query, [a.qk_nope_head_dim, a.qk_rope_head_dim], -1)
        return content, self.rotate(rotary, positions[..., None])

    def up_projections(self) -> tuple[Tensor, Tensor]:
        """W_UK [heads, nope, latent] and W_UV [heads, v, latent]."""
        a = self.attention
        per_head = torch.unflatten(self.weights.kv_b_proj, 0, (a.num_attention_heads, -1))
        w_uk, w_uv = torch.split(per_head, [a.qk_nope_head_dim, a.v_head_dim], 1)
        return w_uk, w_uv

    def decode_restored(self, hidden: Tensor, positions: Tensor, entries: Tensor, lengths: Tensor) -> Tensor:
        """Attention output [batch, tokens, hidden], restoring K and V of every head from `entries`."""
        content, rotary = self.project_query(hidden, positions)
        latent, rope_key = torch.split(entries, self._cached_dims, -1)
        w_uk, w_uv = self.up_projections()
        heads = self.attention.num_attention_heads
        restored = torch.einsum("bsc,hdc->bshd", latent, w_uk)
        keys = torch.cat([restored, rope_key[:, :, None].expand(-1, -1, heads, -1)], -1)
        values = torch.einsum("bsc,hdc->bshd", latent, w_uv)
        query = torch.cat([content, rotary], -1)
        output, _ = grouped_attention(query, keys, values, lengths, self.softmax_scale)
        return linear(output.flatten(2).to(hidden.dtype), self.weights.o_proj)

    def decode_absorbed(self, hidden: Tensor, positions: Tensor, entries: Tensor, lengths: Tensor) -> Tensor:
        """The same output, attending to `entries` themselves."""
        content, rotary = self.project_query(hidden, positions)
        w_uk, w_uv = self.up_projections()
        query = torch.cat([torch.einsum("bqhd,hdc->bqhc", content, w_uk), rotary], -1)
        latent_dim = self.attention.kv_lora_rank
        latent, _ = latent_attention(query, entries, lengths, self.softmax_scale, latent_dim)
        values = torch.einsum("bqhc,hdc->bqhd", latent.to(hidden.dtype), w_uv)
        return linear(values.flatten(2), self.weights.o_proj)
