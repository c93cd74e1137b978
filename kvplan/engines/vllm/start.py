"""What of a deployment decides the memory that vLLM takes when it starts, as one cheap cache key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvplan.engines.vllm.mixers import Same
from kvplan.engines.vllm.versions import Rules, rules
from kvplan.model import Quantization
from kvplan.storage import FP16, TORCH_DTYPES

if TYPE_CHECKING:
    from kvplan.engines.base import Deployment, Layout
    from kvplan.gpu import GpuSpec
    from kvplan.model import ModelSpec
    from kvplan.parallel import Parallelism

_DTYPES = {"half": "float16", "float": "float32"}


@dataclass(frozen=True, slots=True)
class Start:
    """One start on one rank. Models and GPUs are compared by identity: hashing them would cost more than the answer.

    `sequences` and `tokens`: max_num_seqs and max_num_batched_tokens after defaults. `dtype`, `quantization`: flags,
    None for the checkpoint's. `eager`: nothing is compiled or captured. `drafts`: how tokens are speculated. `encodes`:
    whether a multimodal encoder is profiled.
    """

    same_spec: Same[ModelSpec]
    same_gpu: Same[GpuSpec]
    parallel: Parallelism
    version: str | None
    sequences: int
    tokens: int
    dtype: str | None
    quantization: str | None
    eager: bool
    drafts: str | None
    encodes: bool

    @property
    def spec(self) -> ModelSpec:
        """The model as its checkpoint holds it."""
        return self.same_spec.value

    @property
    def gpu(self) -> GpuSpec:
        """The device."""
        return self.same_gpu.value

    @property
    def rules(self) -> Rules:
        """Of the release."""
        return rules(self.version)

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the model's dtype."""
        return TORCH_DTYPES.get(self.dtype or self.spec.torch_dtype, FP16).bits // 8

    def loaded(self) -> ModelSpec:
        """The model as flags change it: another dtype, or 16-bit weights that are quantized while they load."""
        spec = self.spec
        if self.dtype:
            spec = replace(spec, torch_dtype=self.dtype)
        if self.quantization == "fp8" and spec.quantization is None:
            spec = replace(spec, quantization=Quantization(quant_method="fp8", weight_format="fp8"))
        return spec


def start(deployment: Deployment, layout: Layout) -> Start:
    """The start of a deployment."""
    args = deployment.engine_args
    dtype, speculation = args.get("dtype"), args.get("speculative_config")
    return Start(
        Same(deployment.spec),
        Same(deployment.gpu),
        deployment.parallel,
        deployment.version,
        layout.max_num_seqs,
        layout.max_num_batched_tokens,
        None if dtype in (None, "auto") else _DTYPES.get(dtype, dtype),
        args.get("quantization"),
        bool(args.get("enforce_eager")),
        str(speculation.get("method")) if isinstance(speculation, Mapping) else None,
        not args.get("language_model_only"),
    )


def is_multimodal(spec: ModelSpec) -> bool:
    """Whether an encoder stands before the decoder: by its weights, or by the name of the class."""
    encoders = any(w.part in {"vision", "audio", "encoder"} for w in spec.other_weights)
    return encoders or (spec.architecture or "").endswith("ForConditionalGeneration")


def weight_formats(spec: ModelSpec) -> set[str]:
    """Formats that any part of a quantized checkpoint is stored in."""
    quantization = spec.quantization
    if quantization is None:
        return set()
    return {f for f in (quantization.weight_format, *(p.weight_format for p in quantization.parts)) if f}
