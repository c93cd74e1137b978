"""torch's fused attention, forced, so that its unfused fallback is an error instead of a wrong measurement.

The CPU's flash kernel wants K and V equally wide, so V is K and the rotary part is cut off the output. CUDA's
memory-efficient kernel takes 576 / 512 as they are; its flash and cuDNN kernels take neither
(torch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kvplan.validate.kernels import Problem
from kvplan.validate.kernels._torch import TorchForm

_CPU_ROWS, _CPU_KEYS, _CPU_PACKED_ROWS = 32, 512, 64


def sdpa(rows: Tensor, entries: Tensor, seen: Tensor | None, scale: float, latent_dim: int) -> Tensor:
    """Rows are the queries of a single head."""
    on_cpu = rows.device.type == "cpu"
    kernel = SDPBackend.FLASH_ATTENTION if on_cpu else SDPBackend.EFFICIENT_ATTENTION
    keys = entries[:, None]
    values = keys if on_cpu else keys[..., :latent_dim]
    with sdpa_kernel(kernel):
        output = scaled_dot_product_attention(rows[:, None], keys, values, attn_mask=seen, scale=scale)
    return output[:, 0, :, :latent_dim]


def sdpa_bytes(problem: Problem) -> int | None:
    """Output and scratch; None where the CPU's kernel may repack the whole cache, which depends on the processor (64
    rows and more).

    CPU: log-sum-exp, and for each thread a tile of 32 rows against 512 keys: scores, maximum, sum and output in
    float32, the scores once more in bf16 (ATen/native/cpu/FlashAttentionKernel.cpp). CUDA: a float32 accumulator as
    large as the output (ATen/native/transformers/cuda/mem_eff_attention, outputs wider than 128).
    """
    batch, query_tokens, heads, width = problem.query.shape
    rows = query_tokens * heads
    if problem.query.device.type == "cuda":
        return batch * rows * problem.latent_dim * (2 + 4)
    tile_rows, keys = min(rows, _CPU_ROWS), min(int(problem.cache.lengths.max()), _CPU_KEYS)
    tile_bytes = 4 * tile_rows * (keys + 2 + width) + 2 * tile_rows * keys
    known_bytes = batch * rows * (2 * width + 4) + torch.get_num_threads() * tile_bytes
    return known_bytes if rows < _CPU_PACKED_ROWS else None


BACKEND = TorchForm("torch-sdpa", sdpa, sdpa_bytes)
