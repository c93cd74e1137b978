"""The peak of vLLM's profile run, phase by phase, as its source allocates it.

Before the cache is sized, vLLM runs the multimodal encoder, one forward pass of `max_num_batched_tokens` and the
sampler over `max_num_seqs` sequences. The peak is the larger of pass and sampler; buffers that stay (an encoder's
outputs, the experts' workspace) stand beside either. Read from `v1/worker/gpu_model_runner.py`, `v1/sample/` and
`layers/fused_moe/`; checked against the start-up ledgers of docs/accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvplan.mlp import DenseMlp, Mlp, MoeMlp
from kvplan.storage import FP16, TORCH_DTYPES
from kvplan.units import MIB

if TYPE_CHECKING:
    from kvplan.engines._vllm_versions import Rules
    from kvplan.engines.base import Deployment, Layout
    from kvplan.model import ModelSpec

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


def profile_peak(deployment: Deployment, layout: Layout, rules: Rules) -> Peak:
    """The peak on the rank that binds: of pipeline stages the last, which samples."""
    sampler = sampler_bytes(deployment, layout, rules)
    workspace = expert_workspace_bytes(deployment, layout.max_num_batched_tokens, rules)
    forward = forward_bytes(deployment, layout.max_num_batched_tokens, rules)
    if not rules.keeps_expert_workspace:
        forward, workspace = forward + workspace, 0
    return Peak(
        phase="sampler" if sampler >= forward else "forward pass",
        phase_bytes=max(sampler, forward) + cublas_bytes(deployment),
        workspace_bytes=workspace,
        encoder_bytes=encoder_bytes(deployment, layout.max_num_batched_tokens),
    )


def model_itemsize(deployment: Deployment) -> int:
    """Bytes of one element of the model's dtype."""
    asked = deployment.engine_args.get("dtype") or "auto"
    name = deployment.spec.torch_dtype if asked == "auto" else asked
    return TORCH_DTYPES.get(name, FP16).bits // 8


def sampler_bytes(deployment: Deployment, layout: Layout, rules: Rules) -> int:
    """Logits of all sequences with what top-p and sampling put beside them; hidden states of the pass before."""
    spec, size = deployment.spec, model_itemsize(deployment)
    sequences = min(layout.max_num_seqs, layout.max_num_batched_tokens)
    per_entry = size + (SORT_BYTES if rules.top_p == "sorted" else PROBABILITY_BYTES)
    if deployment.engine_args.get("speculative_config"):
        per_entry += SPECULATION_BYTES
    mask = _mask_rows(deployment, sequences) * spec.vocab_size * 4 if rules.top_p == "masked" else 0
    hidden = size * spec.hidden_size * (layout.max_num_batched_tokens + 2 * sequences)
    return per_entry * spec.vocab_size * sequences + mask + hidden


def _mask_rows(deployment: Deployment, sequences: int) -> int:
    """Rows of the Triton kernel's buffer: one per multiprocessor (`topk_topp_triton.py`)."""
    return min(deployment.gpu.sm_count or 128, 1 << max(0, sequences - 1).bit_length())


def forward_bytes(deployment: Deployment, tokens: int, rules: Rules) -> int:
    """Hidden states and the widest dense MLP's gate, up and product of one layer."""
    spec, tp = deployment.spec, deployment.parallel.tp
    eager = rules.engine_core == "v0" or deployment.engine_args.get("enforce_eager")
    widths = EAGER_WIDTHS if eager else COMPILED_WIDTHS
    widest = max((_dense_width(g.mlp) for g in spec.layer_groups if g.mlp), default=0)
    return model_itemsize(deployment) * tokens * (widths * spec.hidden_size + 3 * -(-widest // tp))


def _dense_width(mlp: Mlp) -> int:
    """Inner width that every token passes: a dense MLP's, or that of shared experts."""
    return mlp.intermediate_size if isinstance(mlp, DenseMlp) else mlp.shared_intermediate_size


def expert_workspace_bytes(deployment: Deployment, tokens: int, rules: Rules) -> int:
    """The two scratch tensors of fused experts: a row for each token and chosen expert.

    One is max(gate and up, width) wide, the other max(inner, width): `workspace_shapes` of `fused_moe.py`,
    `deep_gemm_moe.py`, `marlin_moe.py` and `cutlass_moe.py`.

    With data and expert parallelism a rank's experts see the tokens of all replicas; until 0.18 kernels took them in
    chunks. FP4 kernels, and those of TensorRT-LLM on data-centre Blackwell, bring their own scratch.
    """
    parallel = deployment.parallel
    formats = weight_formats(deployment.spec)
    if formats & {"mxfp4", "nvfp4"} or (formats and (deployment.gpu.compute_capability or (0, 0))[0] == 10):
        return 0
    rows = (_expert_row(deployment, g.mlp) for g in deployment.spec.layer_groups if isinstance(g.mlp, MoeMlp))
    seen = tokens * parallel.dp if parallel.ep > 1 else tokens
    return model_itemsize(deployment) * min(seen, rules.expert_chunk_tokens or seen) * max(rows, default=0)


def weight_formats(spec: ModelSpec) -> set[str]:
    """Formats that any part of a quantized checkpoint is stored in."""
    quantization = spec.quantization
    if quantization is None:
        return set()
    return {f for f in (quantization.weight_format, *(p.weight_format for p in quantization.parts)) if f}


def _expert_row(deployment: Deployment, mlp: MoeMlp) -> int:
    """Elements of both tensors for one token; experts stay whole under expert parallelism."""
    shares = 1 if deployment.parallel.ep > 1 else deployment.parallel.tp
    inner, width = -(-mlp.moe_intermediate_size // shares), mlp.expert_hidden_size or deployment.spec.hidden_size
    gates = 2 if mlp.gated else 1
    return mlp.num_experts_per_tok * (max(gates * inner, width) + max(inner, width))


def is_multimodal(spec: ModelSpec) -> bool:
    """Whether an encoder stands before the decoder: by its weights, or by the name of the class."""
    encoders = any(w.part in {"vision", "audio", "encoder"} for w in spec.other_weights)
    return encoders or (spec.architecture or "").endswith("ForConditionalGeneration")


def encoder_bytes(deployment: Deployment, tokens: int) -> int:
    """Pixels and outputs of as many images as one step takes; both live until the run ends."""
    if not is_multimodal(deployment.spec) or deployment.engine_args.get("language_model_only"):
        return 0
    return tokens * (IMAGE_BYTES_PER_TOKEN + 2 * deployment.spec.hidden_size)


def cublas_bytes(deployment: Deployment) -> int:
    """cuBLAS's workspace."""
    return CUBLAS_BYTES.get((deployment.gpu.compute_capability or (0, 0))[0], OLD_CUBLAS_BYTES)
