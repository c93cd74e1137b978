"""The ten numeric scenarios of the founding documents, re-run here in float64 from real tensors.

Each is a claim about MLA's algebra or its bytes, at the size at which the documents state it, with the bound that
they state. a* come from the document on inference memory, b* from the one on the attention family. A scenario returns
its largest absolute error; for bytes and shapes that is the distance from what the core plans, and the bound is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvplan.attention import Attention
from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.storage import kv_format
from kvplan.validate.mla_block import MlaBlock, MlaWeights
from kvplan.validate.rope import Rope, Yarn

HIDDEN, LATENT, ROPE, HEAD = 2048, 512, 64, 128
HEADS = HIDDEN // HEAD
TOKENS = 4096
REFERENCE_HEADS, REFERENCE_LAYERS = 128, 30
SCALE = 1 / math.sqrt(HEAD + ROPE)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One claim: `run` returns the error, which must not pass `bound`."""

    id: str
    what: str
    bound: float
    run: Callable[[], float]


def _normal(*shape: int, seed: int = 0, std: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64) * std


def _weights(*shape: int, seed: int) -> Tensor:
    """A projection [..., in, out] that keeps the variance of its input."""
    return _normal(*shape, seed=seed, std=1 / math.sqrt(shape[-2]))


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max())


def gqa(kv_heads: int) -> GroupedQueryAttention:
    """The documents' reference dimensions with so many KV heads."""
    return GroupedQueryAttention(num_attention_heads=REFERENCE_HEADS, num_key_value_heads=kv_heads, head_dim=HEAD)


def mla() -> MultiHeadLatentAttention:
    """The same with DeepSeek's latent."""
    return MultiHeadLatentAttention(
        num_attention_heads=REFERENCE_HEADS,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        qk_nope_head_dim=HEAD,
        v_head_dim=HEAD,
    )


def planned_bytes(attention: Attention, layers: int) -> int:
    """Bytes that the core plans for `layers` layers of TOKENS tokens in float16."""
    storage = kv_format("fp16")
    return layers * sum(t.bytes_per_slot(storage) * int(t.slots(TOKENS)) for t in attention.tensors())


def _tensor_bytes(attention: Attention, layers: int) -> int:
    """Bytes of real float16 tensors, allocated one layer at a time and never touched."""
    total = 0
    for _ in range(layers):
        tensors = [torch.empty(TOKENS, t.heads, t.dim, dtype=torch.float16) for t in attention.tensors()]
        total += sum(t.untyped_storage().nbytes() for t in tensors)
    return total


def _byte_error(kinds: Sequence[Attention], layers: int) -> float:
    return float(max(abs(_tensor_bytes(a, layers) - planned_bytes(a, layers)) for a in kinds))


def compression() -> float:
    """MHA, GQA-8 and MLA over all layers."""
    return _byte_error((gqa(REFERENCE_HEADS), gqa(8), mla()), REFERENCE_LAYERS)


def footprint() -> float:
    """MHA, MQA, GQA-8 and MLA in one layer."""
    return _byte_error((gqa(REFERENCE_HEADS), gqa(1), gqa(8), mla()), 1)


def _restored(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """A latent [tokens, latent] and the K and V [tokens, heads, head] restored from it."""
    latent = _normal(tokens, HIDDEN, seed=1) @ _weights(HIDDEN, LATENT, seed=2)
    both = latent @ _weights(LATENT, 2 * HIDDEN, seed=3)
    keys, values = (torch.unflatten(part, -1, (HEADS, HEAD)) for part in both.chunk(2, -1))
    return latent, keys, values


def projection() -> float:
    """Dimensions of restored K and V that are not those of the heads."""
    _, keys, values = _restored(64)
    wanted = torch.tensor([64, HEADS, HEAD])
    return float(sum((torch.tensor(t.shape) != wanted).sum() for t in (keys, values)))


def joint_latent() -> float:
    """Share saved by real tensors, against 1 - latent / (K + V)."""
    latent, keys, values = _restored(64)
    saved = 1 - latent.nbytes / (keys.nbytes + values.nbytes)
    return abs(saved - (1 - LATENT / (2 * HIDDEN)))


def rope_split() -> float:
    """q.k of the concatenation against the sum of the content and the rotary product."""
    content_q, content_k = _normal(HEADS, HEAD, seed=4), _normal(TOKENS, HEAD, seed=5)
    rotary_q, rotary_k = _normal(HEADS, ROPE, seed=6), _normal(TOKENS, ROPE, seed=7)
    whole = torch.cat([content_q, rotary_q], -1) @ torch.cat([content_k, rotary_k], -1).T
    return _largest(whole - (content_q @ content_k.T + rotary_q @ rotary_k.T))


def rope_relative() -> float:
    """How far scores move when query and key move together, NaN if they do not move when the distance changes."""
    rope = Rope(dim=ROPE)
    query, key = _normal(ROPE, seed=8), _normal(ROPE, seed=9)

    def scores(shift: int) -> Tensor:
        rotated_key = rope.rotate(key, torch.tensor(shift))
        return rope.rotate(query.expand(TOKENS, -1), torch.arange(TOKENS) + shift) @ rotated_key * SCALE

    still = scores(0)
    return max(_largest(scores(shift) - still) for shift in (1, 64, 1000)) if still.std() > SCALE else math.nan


def _absorption(scale: float, std: float) -> float:
    query, latent = _normal(HEADS, 1, HEAD, seed=10), _normal(TOKENS, LATENT, seed=11)
    w_uk = _normal(HEADS, LATENT, HEAD, seed=12, std=std)
    restored = query @ (latent @ w_uk).mT
    absorbed = (query @ w_uk.mT) @ latent.T
    return _largest(restored - absorbed) * scale


def key_absorb() -> float:
    """q.(c W_UK)^T against (q W_UK^T).c^T, with weights of unit variance."""
    return _absorption(1.0, std=1.0)


def score_absorb() -> float:
    """The same as attention scores: projections that keep the variance, and the softmax scale."""
    return _absorption(SCALE, std=1 / math.sqrt(LATENT))


def _attention_weights() -> Tensor:
    return torch.softmax(_normal(HEADS, 1, TOKENS, seed=13), -1)


def value_combine() -> float:
    """sum_j A c W_UV W_O against (sum_j A c)(W_UV W_O)."""
    weights, latent = _attention_weights(), _normal(TOKENS, LATENT, seed=14)
    w_uv, w_o = _normal(HEADS, LATENT, HEAD, seed=15), _weights(HEADS, HEAD, HIDDEN, seed=16)
    step_by_step = (weights @ (latent @ w_uv) @ w_o).sum(0)
    combined = ((weights @ latent) @ (w_uv @ w_o)).sum(0)
    return _largest(step_by_step - combined)


def value_defer() -> float:
    """A V against (A c) W_UV."""
    weights, latent = _attention_weights(), _normal(TOKENS, LATENT, seed=17)
    w_uv = _weights(HEADS, LATENT, HEAD, seed=18)
    return _largest(weights @ (latent @ w_uv) - (weights @ latent) @ w_uv)


def block_error(attention: MultiHeadLatentAttention) -> float:
    """Absorbed against restored decode of the whole block, with the heads of one of eight ranks and YaRN times 40."""
    attention = replace(attention, num_attention_heads=min(attention.num_attention_heads, HEADS))
    rope = Rope(dim=attention.qk_rope_head_dim, yarn=Yarn(factor=40, original_max_position_embeddings=4096))
    weights = MlaWeights.random(attention, HIDDEN, seed=19, dtype=torch.float64)
    block = MlaBlock(attention=attention, weights=weights, rope=rope)
    hidden, positions = _normal(1, 256, HIDDEN, seed=20), torch.arange(256)[None] + 6000
    step = hidden[:, -1:], positions[:, -1:], block.compress(hidden, positions), torch.tensor([256])
    return _largest(block.decode_absorbed(*step) - block.decode_restored(*step))


def whole_block(attention: MultiHeadLatentAttention) -> Scenario:
    """The model's own attention block, beside the documents' scenarios."""
    what = "down-projections, latent norm, rotary, W_UK, W_UV and W_O: absorbed equals restored"
    return Scenario("mla-block", what, 1e-12, lambda: block_error(attention))


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("a1-compression", "bytes of MHA, GQA-8 and MLA over 30 layers of 4,096 tokens", 0.0, compression),
    Scenario("a2-projection", "hidden 2048 to latent 512 to 16 heads of K and V: shapes restored", 0.0, projection),
    Scenario("a3-rope-split", "q.k of [content; rotary] equals the sum of both products", 1e-12, rope_split),
    Scenario("a4-key-absorb", "q.(c W_UK)^T equals (q W_UK^T).c^T", 1e-11, key_absorb),
    Scenario("a5-value-combine", "sum A c W_UV W_O equals (sum A c)(W_UV W_O)", 1e-11, value_combine),
    Scenario("b1-joint-latent", "one latent of 512 for K and V of 2048 saves 87.5 %", 0.0, joint_latent),
    Scenario("b2-rope-relative", "rotary scores depend on positions only through their distance", 1e-12, rope_relative),
    Scenario("b3-score-absorb", "scores of restored keys equal those of absorbed queries", 1e-12, score_absorb),
    Scenario("b4-value-defer", "A V equals (A c) W_UV", 1e-13, value_defer),
    Scenario("b5-footprint", "bytes of MHA, MQA, GQA-8 and MLA in one layer of 4,096 tokens", 0.0, footprint),
)
