"""SGLang 0.5: a cell per token, pages, a sliding pool and a pool of states.

Rules and defaults: read from sglang 0.5.23 (`pool_configurator.py`,
`memory_pool.py`, `memory_hook.py`); every size was checked against SGLang's own pool classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from kvplan.budget import Budget
from kvplan.cache import CacheTensor, Fixed, PerToken, Window
from kvplan.engines._tokens import TokenPool
from kvplan.engines.base import DeploymentKey, choose, share, switch, whole
from kvplan.errors import UnknownName, Unsupported
from kvplan.model import LayerGroup, ModelSpec
from kvplan.parallel import stage_layers
from kvplan.storage import BF16, FP8, TORCH_DTYPES, KvFormat, kv_format

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout

_DTYPES = {"auto", "bf16", "fp16", "fp8", "fp8_e5m2", "fp8_ds_mla", "nvfp4", "mxfp8"}
_PAGE_OF_BACKEND = {
    "flashmla": 64, "trtllm_mla": 64, "cutedsl_mla": 64, "cutlass_mla": 128, "trtllm_mha": 64, "fa4": 128,
}  # fmt: skip
"""Pages that an attention backend forces; all others take --page-size, default 1."""
_GIB = 2**30


def _is_sparse(spec: ModelSpec) -> bool:
    """DeepSeek Sparse Attention: MLA layers with an indexer."""
    return any(a.kind == "mla" and a.index_head_dim for _, a in spec.mixers())


def _is_compressed(spec: ModelSpec) -> bool:
    return any(a.kind == "compressed" for _, a in spec.mixers())


def kv_dtype(deployment: Deployment) -> str:
    """`auto`: what the checkpoint's KV scheme says; fp8 for DeepSeek-V4, and for DSA from SM 10 on; else 16 bit."""
    asked, spec = deployment.kv_dtype, deployment.spec
    if asked != "auto":
        return kv_format(asked).name
    hint = spec.quantization.kv_cache_dtype if spec.quantization else None
    blackwell = (deployment.gpu.compute_capability or (0, 0)) >= (10, 0)
    if _is_compressed(spec) or hint == "fp8" or (_is_sparse(spec) and blackwell):
        return "fp8"
    return kv_format(spec.torch_dtype).name


def storage(deployment: Deployment, dtype: str) -> KvFormat:
    """KV dtype -> storage per tensor. DSA in fp8 keeps FlashMLA's 656-byte record, or 576 under trtllm kernels."""
    if dtype not in _DTYPES:
        raise UnknownName.of("kv dtype for SGLang", dtype, _DTYPES)
    spec, fmt = deployment.spec, kv_format(dtype)
    if dtype == "fp8_ds_mla" and not _is_sparse(spec):
        raise Unsupported("sglang: fp8_ds_mla is the record of sparse attention; use fp8 for dense layers")
    if dtype == "fp8" and _is_sparse(spec) and not _raw_fp8_rows(deployment):
        fmt = kv_format("fp8_ds_mla")
    if dtype == "nvfp4" and _is_sparse(spec):
        raise Unsupported("sglang: fp4 KV cache is not supported with a sparse indexer")
    # Convolution columns keep the model's dtype; SSM states are fp32 unless a flag or an environment says otherwise.
    conv = TORCH_DTYPES.get(spec.torch_dtype, BF16)
    state = TORCH_DTYPES.get(str(choose(deployment.engine_args, "mamba_ssm_dtype", "float32")))
    return fmt.with_roles(conv_state=conv, **({"recurrent_state": state} if state else {}))


def _raw_fp8_rows(deployment: Deployment) -> bool:
    """Whether the sparse backend stores plain fp8 rows without scales: trtllm for prefill or decode."""
    args = deployment.engine_args
    stated = [
        args.get(k) for k in ("dsa_decode_backend", "dsa_prefill_backend", "nsa_decode_backend", "nsa_prefill_backend")
    ]
    backends = [str(b) for b in stated if b]
    if backends:
        return "trtllm" in backends or all(b == "tilelang" for b in backends)
    return (deployment.gpu.compute_capability or (0, 0)) >= (10, 0)


def page_size(deployment: Deployment) -> int:
    """--page-size, or what the backend forces: 64 for DSA, 256 for DeepSeek-V4, 1 otherwise."""
    args, spec = deployment.engine_args, deployment.spec
    backend = str(args.get("attention_backend") or args.get("decode_attention_backend") or "")
    forced = 256 if _is_compressed(spec) else 64 if _is_sparse(spec) else _PAGE_OF_BACKEND.get(backend)
    return forced or deployment.block_size or whole(args, "page_size", 1) or 1


def _sum_bytes(spec: ModelSpec, fmt: KvFormat, deployment: Deployment, law: type) -> dict[Any, int]:
    """Bytes per slot of the fullest stage by law, over tensors that follow laws of this type."""
    parallel, best = deployment.parallel, dict[Any, int]()
    for stage in stage_layers(spec.num_hidden_layers, parallel.pp):
        totals: dict[Any, int] = {}
        for group in spec.layer_groups:
            layers = sum(i in stage for i in group.indices)
            for tensor in _allocated(group):
                if isinstance(tensor.law, law) and layers:
                    size = layers * _bytes_per_slot(tensor, fmt, parallel.tp, parallel.dcp)
                    totals[tensor.law] = totals.get(tensor.law, 0) + size
        best = max(best, totals, key=lambda t: sum(t.values()))
    return best


def _allocated(group: LayerGroup) -> Iterator[CacheTensor]:
    """What the pools hold for one layer, those that read an earlier layer's K and V included.

    A log of Gemma 4 E4B shows slots for 35 sliding and 7 full layers, where 24 of the 42 store anything.
    """
    for attention in group.attention:
        yield from attention.source.tensors() if attention.kind == "shared" else attention.tensors()


def _bytes_per_slot(tensor: CacheTensor, fmt: KvFormat, tp: int, dcp: int) -> int:
    """Index keys are not divided under DCP: every rank keeps all of them."""
    size = tensor.bytes_per_slot(fmt, tp, dcp)
    return size * dcp if tensor.role == "index_k" else size


def _window_ratio(deployment: Deployment) -> Fraction:
    """--swa-full-tokens-ratio: 0.8, 0.1 for DeepSeek-V4."""
    default = "0.1" if _is_compressed(deployment.spec) else "0.8"
    return share(deployment.engine_args, "swa_full_tokens_ratio", default)


@lru_cache(maxsize=1024)
def _layout(key: DeploymentKey) -> TokenPool:
    d = key.deployment
    dtype = kv_dtype(d)
    fmt, page, spec = storage(d, dtype), page_size(d), d.spec
    window_share, state_share = _window_ratio(d), share(d.engine_args, "mamba_full_memory_ratio", "0.9")
    growing = _sum_bytes(spec, fmt, d, PerToken)
    windows = _sum_bytes(spec, fmt, d, Window)
    states = _sum_bytes(spec, fmt, d, Fixed)
    cell = sum((size * law.slots_per_token() for law, size in growing.items()), Fraction(0))
    radix = not switch(d.engine_args, "disable_radix_cache")
    return TokenPool(
        kv_dtype=dtype,
        kv_format=fmt,
        block_size=page,
        cell_bytes=cell,
        max_model_len=d.max_model_len,
        max_num_seqs=max_running_requests(d),
        max_num_batched_tokens=chunked_prefill_size(d),
        window_cell_bytes=sum(windows.values()),
        # A model of sliding layers alone has one pool.
        window_ratio=(window_share if cell else Fraction(1)) if windows else Fraction(0),
        window_tokens=max((w.tokens for w in windows), default=0) + page,
        state_bytes=sum(size * law.count for law, size in states.items()),
        state_slots=3 if radix else 1,
        state_ratio=state_share if states else Fraction(0),
        dcp=d.parallel.dcp,
        spare_blocks=1,
        spare_states=1,
        notes=_notes(d),
    )


def _notes(d: Deployment) -> tuple[str, ...]:
    notes = ["The pool holds one page more than it hands out."]
    if d.parallel.dp > 1:
        notes.append(f"--enable-dp-attention: {d.parallel.dp} groups hold different sessions.")
    return tuple(notes)


def chunked_prefill_size(d: Deployment) -> int:
    """--chunked-prefill-size by GPU memory (`memory_hook.py`)."""
    stated = d.max_num_batched_tokens or whole(d.engine_args, "chunked_prefill_size", None)
    if stated:
        return stated
    tiers = ((20, 2048), (35, 4096), (60, 4096), (160, 8192))
    return next((size for gib, size in tiers if d.gpu.memory_bytes < gib * _GIB), 16384)


def max_running_requests(d: Deployment) -> int:
    """--max-running-requests, per group of data-parallel attention; 256 for DeepSeek-V4, else up to 4,096."""
    stated = d.max_num_seqs or whole(d.engine_args, "max_running_requests", None)
    if stated:
        return max(1, stated // d.parallel.dp)
    return 256 if _is_compressed(d.spec) else 4096


class SGLang:
    """The engine."""

    name = "sglang"
    default_version = "0.5"
    gpu_axis: Literal["tp", "pp"] = "tp"
    args = frozenset({
        "attention_backend", "decode_attention_backend", "dsa_decode_backend", "dsa_prefill_backend",
        "nsa_decode_backend", "nsa_prefill_backend", "page_size", "swa_full_tokens_ratio", "mamba_full_memory_ratio",
        "mamba_ssm_dtype", "disable_radix_cache", "chunked_prefill_size", "max_running_requests",
        "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
        "enable_dp_attention", "disable_cuda_graph",
    })  # fmt: skip

    def layout(self, deployment: Deployment) -> Layout:
        """Cell, pages and pools; `Unsupported` where attention heads do not share out over TP."""
        for _, attention in deployment.spec.mixers():
            heads = getattr(attention, "num_attention_heads", None)
            if heads and heads % deployment.parallel.tp:
                raise Unsupported(f"sglang: {heads} attention heads are not divisible by tp {deployment.parallel.tp}")
        return _layout(DeploymentKey(deployment))

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """See `kvplan.engines._sglang_memory`."""
        from kvplan.engines._sglang_memory import budget

        return budget(deployment, layout, given_bytes)

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """`python -m sglang.launch_server` flags."""
        d, parallel = deployment, deployment.parallel
        parts = [f"--tp-size {parallel.tp * parallel.dp}", f"--context-length {d.max_model_len}"]
        if parallel.dp > 1:
            parts.append(f"--dp-size {parallel.dp} --enable-dp-attention")
        if parallel.pp > 1:
            parts.append(f"--pp-size {parallel.pp}")
        if d.kv_dtype != "auto":
            parts.append(
                f"--kv-cache-dtype {'fp8_e4m3' if kv_format(d.kv_dtype).default == FP8 else kv_format(d.kv_dtype).name}"
            )
        if max_num_seqs:
            parts.append(f"--max-running-requests {max_num_seqs * parallel.dp}")
        if d.memory_fraction:
            parts.append(f"--mem-fraction-static {d.memory_fraction}")
        return " ".join(parts)


ENGINE = SGLang()
