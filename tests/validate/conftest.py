"""A small model with MLA, as the planner knows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.model import LayerGroup, ModelSpec

SMALL_GRID = ((1, 16, 300), (2, 32, 200))


@pytest.fixture
def spec() -> ModelSpec:
    """`small_mla` as a fixture."""
    return small_mla()


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a whole session take about a second: two held-out shapes, small products, one scenario."""
    from kvplan.units import MIB
    from kvplan.validate import lab, machine, run
    from kvplan.validate.effort import EFFORTS, Effort
    from kvplan.validate.paged import Extent

    real = run.find_machine
    monkeypatch.setattr(run, "find_machine", lambda device: replace(real(device), cache_bytes=MIB))
    monkeypatch.setattr(machine, "_gemm_shapes", lambda device: ((64, 64, 64),))
    monkeypatch.setattr(run, "SCENARIOS", run.SCENARIOS[:1])
    monkeypatch.setitem(run._SCENES, "cpu", Extent(1, 64))
    monkeypatch.setitem(lab.GRIDS, "cpu", SMALL_GRID)
    monkeypatch.setitem(EFFORTS, ("cpu", "quick"), Effort(600, 0.01, 0.001, 0.01, 4 * MIB, Extent(1, 130), ("bf16",)))


def small_mla() -> ModelSpec:
    """Two layers with DeepSeek-V3's latent and 16 heads."""
    attention = MultiHeadLatentAttention(
        num_attention_heads=16,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )
    return ModelSpec(
        name="small-mla",
        source="a test",
        model_type="deepseek_v3",
        torch_dtype="bfloat16",
        hidden_size=2048,
        vocab_size=1000,
        max_position_embeddings=4096,
        layer_groups=(LayerGroup(layers="0-1", attention=(attention,)),),
    )
