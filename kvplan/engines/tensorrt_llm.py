"""TensorRT-LLM 1.x, PyTorch backend: one pool of blocks, K and V of the local heads.

Rules: `_torch/pyexecutor/{resource_manager,_util}.py` and kvCacheManager.cpp, read and checked against public log
lines; nothing here was run on the engine itself, so layouts are exact where a log confirms them and the notes say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from kvplan.budget import Budget
from kvplan.cache import CacheTensor, Fixed, PerToken
from kvplan.engines._tokens import TokenPool
from kvplan.engines.base import DeploymentKey, whole
from kvplan.errors import UnknownName, Unsupported
from kvplan.parallel import stage_layers
from kvplan.storage import TORCH_DTYPES, KvFormat, kv_format

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout

_DTYPES = {"auto", "bf16", "fp16", "fp8", "nvfp4"}


def kv_dtype(deployment: Deployment) -> str:
    """`auto`: the checkpoint's KV scheme, else the model's dtype."""
    if deployment.kv_dtype != "auto":
        return kv_format(deployment.kv_dtype).name
    hint = deployment.spec.quantization.kv_cache_dtype if deployment.spec.quantization else None
    return hint if hint in _DTYPES else kv_format(deployment.spec.torch_dtype).name


def _windowed(tensor: CacheTensor, deployment: Deployment) -> bool:
    """Sliding layers are full unless max_attention_window is set (1.2; the gpt-oss log shows all 36 layers)."""
    return not isinstance(tensor.law, (PerToken, Fixed)) and bool(deployment.engine_args.get("max_attention_window"))


def _bytes(deployment: Deployment, fmt: KvFormat) -> tuple[int, int, int, int]:
    """Fullest stage: bytes of a growing token, of a sliding slot, the longest window in tokens, a session's states."""
    best = (0, 0, 0, 0)
    for stage in stage_layers(deployment.spec.num_hidden_layers, deployment.parallel.pp):
        growing = sliding = window = states = 0
        for group in deployment.spec.layer_groups:
            layers = sum(i in stage for i in group.indices)
            for tensor in group.tensors() if layers else ():
                size = layers * tensor.bytes_per_slot(fmt, deployment.parallel.tp)
                if isinstance(tensor.law, Fixed):
                    states += size * tensor.law.count
                elif _windowed(tensor, deployment):
                    sliding, window = sliding + size, max(window, int(tensor.slots(deployment.max_model_len)))
                elif isinstance(tensor.law, PerToken) and tensor.law.ratio > 1:
                    raise Unsupported("tensorrt-llm: caches compressed along the sequence are not covered")
                else:
                    growing += size
        best = max(best, (growing, sliding, window, states))
    return best


@lru_cache(maxsize=1024)
def _layout(key: DeploymentKey) -> TokenPool:
    d = key.deployment
    dtype = kv_dtype(d)
    if dtype not in _DTYPES:
        raise UnknownName.of("kv dtype for TensorRT-LLM", dtype, _DTYPES)
    conv = TORCH_DTYPES.get(d.spec.torch_dtype)
    fmt = kv_format(dtype).with_roles(**({"conv_state": conv} if conv else {}))
    growing, sliding, window, states = _bytes(d, fmt)
    return TokenPool(
        kv_dtype=dtype,
        kv_format=fmt,
        block_size=d.block_size or whole(d.engine_args, "tokens_per_block", 32) or 32,
        cell_bytes=Fraction(growing),
        max_model_len=d.max_model_len,
        max_num_seqs=d.max_num_seqs or whole(d.engine_args, "max_batch_size", 2048) or 2048,
        max_num_batched_tokens=d.max_num_batched_tokens or whole(d.engine_args, "max_num_tokens", 8192) or 8192,
        window_cell_bytes=sliding,
        # Distinct windows share the pool equally: as many bytes for sliding layers as for full ones.
        window_ratio=Fraction(growing, sliding) if sliding and growing else Fraction(bool(sliding)),
        window_tokens=window,
        state_bytes=states,
        state_ratio=Fraction(states, max(1, growing * d.max_model_len)) if states else Fraction(0),
        notes=("Read from the engine's source and public logs; not run here.",),
    )


class TensorRTLLM:
    """The engine."""

    name = "tensorrt-llm"
    default_version = "1.2"
    gpu_axis: Literal["tp", "pp"] = "tp"
    args = frozenset({"tokens_per_block", "max_attention_window", "max_batch_size", "max_num_tokens"})

    def layout(self, deployment: Deployment) -> Layout:
        """Blocks of tokens_per_block (32) over local heads; DCP is refused."""
        if deployment.parallel.dcp > 1:
            raise Unsupported("tensorrt-llm: decode context parallelism is not covered")
        return _layout(DeploymentKey(deployment))

    def budget(self, deployment: Deployment, layout: Layout, given_bytes: Mapping[str, int]) -> Budget:
        """See `kvplan.engines._tensorrt_llm_memory`."""
        from kvplan.engines._tensorrt_llm_memory import budget

        return budget(deployment, layout, given_bytes)

    def flags(self, deployment: Deployment, max_num_seqs: int) -> str:
        """`trtllm-serve` flags."""
        d, parallel = deployment, deployment.parallel
        parts = [f"--tp_size {parallel.tp * parallel.dp}", f"--max_seq_len {d.max_model_len}"]
        if parallel.pp > 1:
            parts.append(f"--pp_size {parallel.pp}")
        if parallel.ep > 1:
            parts.append(f"--ep_size {parallel.ep}")
        if max_num_seqs:
            parts.append(f"--max_batch_size {max_num_seqs}")
        if d.kv_dtype != "auto":
            parts.append(f"--kv_cache_dtype {kv_format(d.kv_dtype).name}")
        if d.memory_fraction:
            parts.append(f"--kv_cache_free_gpu_memory_fraction {d.memory_fraction}")
        return " ".join(parts)


ENGINE = TensorRTLLM()
