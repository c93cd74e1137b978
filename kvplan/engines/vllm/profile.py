"""The peak of vLLM's profile run, phase by phase, as its source allocates it.

Before the cache is sized, vLLM runs the multimodal encoder, one forward pass of `max_num_batched_tokens` and the
sampler over `max_num_seqs` sequences. The peak is the larger of pass and sampler; buffers that stay (an encoder's
outputs, the experts' workspace) stand beside either. Read from `v1/worker/gpu_model_runner.py`, `v1/sample/` and
`layers/fused_moe/`; checked against the start-up ledgers of docs/accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvplan.engines.vllm.start import is_multimodal, weight_formats
from kvplan.mlp import DenseMlp, Mlp, MoeMlp
from kvplan.units import MIB

if TYPE_CHECKING:
    from kvplan.engines.vllm.start import Start

PROBABILITY_BYTES = 12
"""Per vocabulary entry and sequence beside the logits: their fp32 copy, probabilities, and the noise that they are
divided by (`sampler.py`, `random_sample`)."""
SORT_BYTES = 36
"""The same where top-p sorts the vocabulary: fp32 copy, sorted values (4) and int64 indices (8), and what a segmented
radix sort of both needs beside them (20). 38 B with 16-bit logits: 5.64 GiB of Qwen3-14B at 1,024 sequences."""
SPECULATION_BYTES = 8
"""More of the same where drafts are checked: logits of one drafted token for each sequence, and fp32 copies of both for
log-probabilities (`rejection_sampler.py`)."""
CUBLAS_BYTES = {9: 32 * MIB, 10: 32 * MIB, 12: 32 * MIB}
"""Workspace of cuBLAS inside torch's allocator by compute capability (torch `CUDABlas.cpp`: 32 MiB on Hopper and later,
8 MiB before)."""
OLD_CUBLAS_BYTES = 8 * MIB + MIB // 8
EAGER_WIDTHS, COMPILED_WIDTHS = 3, 5
"""Hidden states alive at the widest point of a layer: residual, norm, output; compiled pieces also hold their inputs.
The eager peak of Llama-3.1-8B grows by 110 kB a token (2.9 widths; vllm issue 10517); compiled ones show 4 to 6.6."""
IMAGE_BYTES_PER_TOKEN = 9408
"""Pixels of one encoder token: (patch 14 x merge 2) squared x 3 colours x 2 B, twice for a frame pair. 4.7 kB (Llama 4)
to 18.8 kB (Gemma 3)."""

Phase = Literal["sampler", "forward pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Bytes of torch's allocator above the weights at the peak, by what holds them. `phase`: which run was larger."""

    phase: Phase
    phase_bytes: int
    workspace_bytes: int
    encoder_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.phase_bytes + self.workspace_bytes + self.encoder_bytes


def profile_peak(start: Start) -> Peak:
    """The peak on the rank that binds: of pipeline stages the last, which samples."""
    sampler, forward, workspace = sampler_bytes(start), forward_bytes(start), expert_workspace_bytes(start)
    if not start.rules.keeps_expert_workspace:
        forward, workspace = forward + workspace, 0
    major = (start.gpu.compute_capability or (0, 0))[0]
    return Peak(
        phase="sampler" if sampler >= forward else "forward pass",
        phase_bytes=max(sampler, forward) + CUBLAS_BYTES.get(major, OLD_CUBLAS_BYTES),
        workspace_bytes=workspace,
        encoder_bytes=encoder_bytes(start),
    )


def sampler_bytes(start: Start) -> int:
    """Logits of all sequences with what top-p and sampling put beside them; hidden states of the pass before."""
    vocab, sequences, top_p = start.spec.vocab_size, min(start.sequences, start.tokens), start.rules.top_p
    per_entry = start.itemsize + (SORT_BYTES if top_p == "sorted" else PROBABILITY_BYTES)
    if start.drafts:
        per_entry += SPECULATION_BYTES
    mask = _mask_rows(start, sequences) * vocab * 4 if top_p == "masked" else 0
    hidden = start.itemsize * start.spec.hidden_size * (start.tokens + 2 * sequences)
    return per_entry * vocab * sequences + mask + hidden


def _mask_rows(start: Start, sequences: int) -> int:
    """Rows of the Triton kernel's buffer: one per multiprocessor (`topk_topp_triton.py`)."""
    return min(start.gpu.sm_count or 128, 1 << max(0, sequences - 1).bit_length())


def forward_bytes(start: Start) -> int:
    """Hidden states and the widest dense MLP's gate, up and product of one layer."""
    widths = EAGER_WIDTHS if start.eager or start.rules.engine_core == "v0" else COMPILED_WIDTHS
    widest = max((_dense_width(g.mlp) for g in start.spec.layer_groups if g.mlp), default=0)
    return start.itemsize * start.tokens * (widths * start.spec.hidden_size + 3 * -(-widest // start.parallel.tp))


def _dense_width(mlp: Mlp) -> int:
    """Inner width that every token passes: a dense MLP's, or that of shared experts."""
    return mlp.intermediate_size if isinstance(mlp, DenseMlp) else mlp.shared_intermediate_size


def expert_workspace_bytes(start: Start) -> int:
    """The two scratch tensors of fused experts: a row for each token and chosen expert.

    One is max(gate and up, width) wide, the other max(inner, width): `workspace_shapes` of `fused_moe.py`,
    `deep_gemm_moe.py`, `marlin_moe.py` and `cutlass_moe.py`. With data and expert parallelism a rank's experts see the
    tokens of all replicas; until 0.17 kernels took them in chunks. FP4 kernels, and those of TensorRT-LLM on
    data-centre Blackwell, bring their own scratch.
    """
    formats, parallel = weight_formats(start.spec), start.parallel
    if formats & {"mxfp4", "nvfp4"} or (formats and (start.gpu.compute_capability or (0, 0))[0] == 10):
        return 0
    row = max((_expert_row(start, g.mlp) for g in start.spec.layer_groups if isinstance(g.mlp, MoeMlp)), default=0)
    seen = start.tokens * parallel.dp if parallel.ep > 1 else start.tokens
    return start.itemsize * min(seen, start.rules.expert_chunk_tokens or seen) * row


def _expert_row(start: Start, mlp: MoeMlp) -> int:
    """Elements of both tensors for one token; experts stay whole under expert parallelism."""
    shares = 1 if start.parallel.ep > 1 else start.parallel.tp
    inner, width = -(-mlp.moe_intermediate_size // shares), mlp.expert_hidden_size or start.spec.hidden_size
    gates = 2 if mlp.gated else 1
    return mlp.num_experts_per_tok * (max(gates * inner, width) + max(inner, width))


def encoder_bytes(start: Start) -> int:
    """Pixels and outputs of as many images as one step takes; both live until the run ends."""
    if not start.encodes or not is_multimodal(start.spec):
        return 0
    return start.tokens * (IMAGE_BYTES_PER_TOKEN + 2 * start.spec.hidden_size)
