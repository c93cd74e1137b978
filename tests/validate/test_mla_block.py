"""The MLA block against the definition, written out once more head by head; and what each mistake does to it."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.attention.mla import MultiHeadLatentAttention  # noqa: E402
from kvplan.validate.mla_block import MlaBlock, MlaWeights  # noqa: E402
from kvplan.validate.rope import Rope, Yarn  # noqa: E402

HIDDEN, TOKENS, STEP = 256, 40, 2
YARN = Yarn(factor=40, original_max_position_embeddings=4096)
BOUND = 1e-12


def attention(q_lora_rank: int | None = 96, heads: int = 4) -> MultiHeadLatentAttention:
    return MultiHeadLatentAttention(
        num_attention_heads=heads,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        q_lora_rank=q_lora_rank,
    )


@cache
def block(q_lora_rank: int | None = 96) -> MlaBlock:
    shape = attention(q_lora_rank)
    weights = MlaWeights.random(shape, HIDDEN, seed=1, dtype=torch.float64)
    return MlaBlock(attention=shape, weights=weights, rope=Rope(dim=64, yarn=YARN))


@cache
def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden = torch.randn(2, TOKENS, HIDDEN, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    positions = torch.arange(TOKENS).expand(2, -1) + torch.tensor([[0], [5000]])
    return hidden, positions, torch.tensor([TOKENS, TOKENS])


def decode(layer: MlaBlock, form: str) -> torch.Tensor:
    hidden, positions, lengths = inputs()
    entries = layer.compress(hidden, positions)
    return getattr(layer, form)(hidden[:, -STEP:], positions[:, -STEP:], entries, lengths)


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return weight * x / math.sqrt(float(np.mean(x * x)) + 1e-6)


def turn(x: np.ndarray, position: float, frequencies: np.ndarray) -> np.ndarray:
    """Neighbouring elements as complex numbers, turned one by one."""
    turned = [complex(x[2 * i], x[2 * i + 1]) * np.exp(1j * position * f) for i, f in enumerate(frequencies)]
    return np.array([part for z in turned for part in (z.real, z.imag)])


def yarn_frequencies() -> np.ndarray:
    """Straight from the paper: a pair turns trained x frequency / 2 pi times; the ramp runs between pairs."""
    low, high = (64 * math.log(4096 / (beta * 2 * math.pi)) / (2 * math.log(10000)) for beta in (32, 1))
    low, high = math.floor(low), math.ceil(high)
    plain = [10000 ** (-2 * i / 64) for i in range(32)]
    kept = [1 - min(max((i - low) / (high - low), 0), 1) for i in range(32)]
    return np.array([f * k + f / 40 * (1 - k) for f, k in zip(plain, kept, strict=True)])


def oracle(q_lora_rank: int | None) -> np.ndarray:
    """One session, one query, one head at a time; K and V restored for each."""
    w = {n: getattr(block(q_lora_rank).weights, n) for n in MlaWeights.__slots__}
    w = {n: None if t is None else t.numpy() for n, t in w.items()}
    hidden, positions, _ = (t.numpy() for t in inputs())
    frequencies, scale = yarn_frequencies(), (0.1 * math.log(40) + 1) ** 2 / math.sqrt(128 + 64)
    output = np.zeros((2, STEP, HIDDEN))
    for b in range(2):
        down = hidden[b] @ w["kv_a_proj_with_mqa"].T
        latent = [norm(row[:512], w["kv_a_layernorm"]) for row in down]
        rope_key = [turn(row[512:], p, frequencies) for row, p in zip(down, positions[b], strict=True)]
        for step in range(STEP):
            at = TOKENS - STEP + step
            x = hidden[b, at]
            x = norm(w["q_a_proj"] @ x, w["q_a_layernorm"]) if q_lora_rank else x
            queries = (w["q_b_proj"] @ x).reshape(4, 192)
            heads = []
            for head, up in enumerate(w["kv_b_proj"].reshape(4, 256, 512)):
                rotary = turn(queries[head, 128:], positions[b, at], frequencies)
                seen = range(at + 1)
                scores = np.array([queries[head, :128] @ up[:128] @ latent[j] + rotary @ rope_key[j] for j in seen])
                weights = np.exp(scale * scores - max(scale * scores))
                heads.append(
                    sum(a * (up[128:] @ latent[j]) for a, j in zip(weights, seen, strict=True)) / weights.sum()
                )
            output[b, step] = w["o_proj"] @ np.concatenate(heads)
    return output


@pytest.mark.parametrize("q_lora_rank", [96, None])
@pytest.mark.parametrize("form", ["decode_absorbed", "decode_restored"])
def test_both_forms_compute_the_definition(form: str, q_lora_rank: int | None) -> None:
    error = np.abs(decode(block(q_lora_rank), form).numpy() - oracle(q_lora_rank)).max()
    assert error <= BOUND


def test_absorbed_decode_equals_restored_decode_at_the_dimensions_of_deepseek_v3_heads() -> None:
    shape = attention(q_lora_rank=1536, heads=16)
    weights = MlaWeights.random(shape, 2048, seed=3, dtype=torch.float64)
    layer = MlaBlock(attention=shape, weights=weights, rope=Rope(dim=64, yarn=YARN))
    hidden = torch.randn(1, 128, 2048, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    positions, lengths = torch.arange(128)[None], torch.tensor([128])
    step = hidden[:, -1:], positions[:, -1:], layer.compress(hidden, positions), lengths
    assert (layer.decode_absorbed(*step) - layer.decode_restored(*step)).abs().max() <= BOUND


class NoLatentNorm(MlaBlock):
    def normalise_latent(self, latent: torch.Tensor) -> torch.Tensor:
        return latent


class ScaleOfTheEntry(MlaBlock):
    @property
    def softmax_scale(self) -> float:
        return self.rope.softmax_gain / math.sqrt(576)


class HalfSplitRope(MlaBlock):
    """Pairs element i with element i + 32 (GPT-NeoX) instead of with its neighbour."""

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        paired = torch.stack(x.chunk(2, -1), -1).flatten(-2)
        return self.rope.rotate(paired, positions)


class NoTemperature(MlaBlock):
    @property
    def softmax_scale(self) -> float:
        return 1 / math.sqrt(192)


@pytest.mark.parametrize("mistake", [NoLatentNorm, ScaleOfTheEntry, HalfSplitRope, NoTemperature])
@pytest.mark.parametrize("form", ["decode_absorbed", "decode_restored"])
def test_a_mistake_is_far_outside_the_bound(mistake: type[MlaBlock], form: str) -> None:
    right = block()
    wrong = mistake(attention=right.attention, weights=right.weights, rope=right.rope)
    assert np.abs(decode(wrong, form).numpy() - oracle(96)).max() > 1e6 * BOUND


def test_without_yarn_frequencies_and_scale_are_plain() -> None:
    plain = replace(block(), rope=Rope(dim=64))
    assert plain.softmax_scale == 1 / math.sqrt(192)
    assert plain.rope.frequencies().tolist() == pytest.approx([10000 ** (-i / 32) for i in range(32)], rel=1e-15)
