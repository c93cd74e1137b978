"""How many parameters a model has, by part, and how many bytes one rank holds of them.

Parts that have no units to share (latent down projections, routers, norms, an indexer) are on every rank; KV heads are
copied where there are fewer of them than ranks; experts share out by their columns (TP) or whole (EP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from kvplan.arith import cdiv
from kvplan.errors import UnknownName
from kvplan.matrix import Weight, vector
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec
from kvplan.parallel import Parallelism, stage_layers
from kvplan.storage import FP16, FP32, TORCH_DTYPES, Storage

WEIGHT_FORMATS: dict[str, Storage] = {
    "bf16": FP16,
    "fp32": FP32,
    "fp8": Storage("fp8", 8),
    "fp8_block": Storage("fp8, fp32 scale per 128 x 128", 8, scale_bits=32, group=128 * 128),
    "mxfp8": Storage("mxfp8", 8, scale_bits=8, group=32),
    "int8": Storage("int8", 8),
    "int4": Storage("int4, 16-bit scale and 4-bit zero per 128", 4, scale_bits=20, group=128),
    "int4_g32": Storage("int4, 16-bit scale per 32", 4, scale_bits=16, group=32),
    "nvfp4": Storage("nvfp4", 4, scale_bits=8, group=16),
    "mxfp4": Storage("mxfp4", 4, scale_bits=8, group=32),
}
"""How weight formats store a matrix, scales included (engines load them as the checkpoints hold them)."""


def layer_weights(spec: ModelSpec, group: LayerGroup) -> Iterator[Weight]:
    """Weights of one layer of a group: mixers, MLP, and the vectors that belong to neither."""
    for attention in group.attention:
        yield from attention.weights(spec.hidden_size)
    if group.mlp:
        yield from group.mlp.weights(spec.hidden_size)
    if group.norm_elements:
        yield vector("norm", group.norm_elements)


def outer_weights(spec: ModelSpec) -> Iterator[Weight]:
    """Embedding, head, and what stands beside the layers (final norm, positions, encoders)."""
    table = spec.vocab_size * spec.hidden_size
    yield Weight("embedding", table, spec.vocab_size, matrix=False)
    if not spec.tie_word_embeddings:
        yield Weight("head", table, spec.vocab_size, matrix=False)
    for other in spec.other_weights:
        yield vector(other.part, other.numel)


@lru_cache(maxsize=512)
def params_by_part(spec: ModelSpec) -> dict[str, int]:
    """Parameters of the whole model by part, multi-token prediction left out."""
    parts: Counter[str] = Counter()
    for weight in outer_weights(spec):
        parts[weight.part] += weight.numel
    for group in spec.layer_groups:
        for weight in layer_weights(spec, group):
            parts[weight.part] += weight.numel * len(group.indices)
    return dict(parts)


def params_total(spec: ModelSpec) -> int:
    """All parameters."""
    return sum(params_by_part(spec).values())


def params_active(spec: ModelSpec) -> int:
    """Parameters that run for one token: of routed experts only those chosen."""
    idle = Fraction(0)
    for group in spec.layer_groups:
        if isinstance(group.mlp, MoeMlp):
            experts = sum(w.numel for w in group.mlp.weights(spec.hidden_size) if w.part == "experts")
            chosen = Fraction(group.mlp.num_experts_per_tok, group.mlp.num_experts)
            idle += len(group.indices) * experts * (1 - chosen)
    return params_total(spec) - int(idle)


def weight_storage(spec: ModelSpec, weight: Weight) -> Storage:
    """How one weight is stored: in the checkpoint's quantized format, or in the model's dtype."""
    quantization = spec.quantization
    if quantization and quantization.weight_format and weight.matrix and weight.part not in quantization.unquantized:
        own = (p.weight_format for p in quantization.parts if p.part == weight.part)
        name = next(own, quantization.weight_format)
        if name not in WEIGHT_FORMATS:
            raise UnknownName.of("weight format", name, WEIGHT_FORMATS, where=f"{spec.name}: ")
        return WEIGHT_FORMATS[name]
    return TORCH_DTYPES.get(spec.torch_dtype, FP16)


def rank_bytes_of(spec: ModelSpec, weight: Weight, parallel: Parallelism) -> int:
    """Bytes of one weight on the fullest rank; routed experts stay whole under expert parallelism."""
    tp = parallel.tp
    numel = weight.numel_per_rank(tp)
    if weight.part == "experts" and parallel.ep > 1:
        numel = cdiv(weight.numel, parallel.ep)
    return weight_storage(spec, weight).vector_bytes(numel)


@lru_cache(maxsize=1024)
def rank_bytes(spec: ModelSpec, parallel: Parallelism) -> int:
    """Bytes of weights on the fullest rank: the heaviest pipeline stage, embedding on the first, head on the last."""
    layers: dict[int, int] = {}
    for group in spec.layer_groups:
        size = sum(rank_bytes_of(spec, w, parallel) for w in layer_weights(spec, group))
        layers.update(dict.fromkeys(group.indices, size))
    outer: Counter[str] = Counter()
    for weight in outer_weights(spec):
        outer["last" if weight.part in {"head", "norm"} else "first"] += rank_bytes_of(spec, weight, parallel)
    stages = [sum(layers[i] for i in stage) for stage in stage_layers(spec.num_hidden_layers, parallel.pp)]
    stages[0] += outer["first"]
    stages[-1] += outer["last"]
    return max(stages)
