"""How many parameters a model has, by part, and how many bytes one rank holds of them once an engine has loaded it.

Parts that have no units to share (latent down projections, routers, norms, an indexer) are on every rank; KV heads are
copied where there are fewer of them than ranks; experts share out by their columns (TP) or whole (EP); embedding and
head are padded to a multiple of 64 rows and split. What engines compute when they load is counted too: rotary tables,
and the 16-bit copy of MLA's kv_b_proj where the checkpoint quantizes it (vLLM `layers/vocab_parallel_embedding.py`,
`layers/rotary_embedding/base.py`, `layers/attention/mla_attention.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from kvplan.matrix import Weight, vector
from kvplan.mlp import MoeMlp
from kvplan.model import LayerGroup, ModelSpec, OtherWeight
from kvplan.parallel import Parallelism, stage_layers
from kvplan.storage import FP16, FP32, TORCH_DTYPES, Storage
from kvplan.weight_formats import WeightFormat, weight_format

VOCAB_ALIGN = 64
"""Rows that engines pad the vocabulary to (vLLM `DEFAULT_VOCAB_PADDING_SIZE`)."""
_LAST_STAGE = frozenset({"head", "norm"})
_ALWAYS_FP32 = frozenset({"hyper_connection"})
"""Parts that engines keep in fp32 whatever the model's dtype (vLLM `models/deepseek_v4`)."""


def layer_weights(spec: ModelSpec, group: LayerGroup) -> Iterator[Weight]:
    """Weights of one layer of a group: mixers, MLP, and what belongs to neither."""
    for attention in group.attention:
        yield from attention.weights(spec.hidden_size)
    if group.mlp:
        yield from group.mlp.weights(spec.hidden_size)
    if group.norm_elements:
        yield vector("norm", group.norm_elements)
    yield from _others(group.other_weights)


def outer_weights(spec: ModelSpec) -> Iterator[Weight]:
    """Embedding, head, and what stands beside the layers in the checkpoint (final norm, positions, encoders)."""
    yield from _tables(spec)
    yield from _others(o for o in spec.other_weights if o.held != "engine")


def _tables(spec: ModelSpec) -> Iterator[Weight]:
    """The embedding, and the head where it is not the same table."""
    table = Weight(
        "embedding", spec.vocab_size * spec.hidden_size, spec.vocab_size or 1, matrix=False, align=VOCAB_ALIGN
    )
    yield table
    if not spec.tie_word_embeddings:
        yield replace(table, part="head", matrix=True, inputs=spec.hidden_size)


def _others(weights: Iterable[OtherWeight]) -> Iterator[Weight]:
    return (vector(w.part, w.numel, units=w.units) for w in weights)


def _total_by_part(spec: ModelSpec, groups: Iterable[LayerGroup]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for group in groups:
        for weight in layer_weights(spec, group):
            parts[weight.part] += weight.numel * len(group.indices)
    return parts


@lru_cache(maxsize=512)
def params_by_part(spec: ModelSpec) -> dict[str, int]:
    """Parameters of the whole model by part, multi-token prediction left out; a tied head counts once, as embedding."""
    parts = _total_by_part(spec, spec.layer_groups)
    for weight in outer_weights(spec):
        parts[weight.part] += weight.numel
    return {part: numel for part, numel in parts.items() if numel}


def params_total(spec: ModelSpec) -> int:
    """All parameters, multi-token prediction left out."""
    return sum(params_by_part(spec).values())


def params_mtp(spec: ModelSpec) -> int:
    """Parameters of the multi-token prediction module, beside the embedding and head that it shares with the model."""
    return sum(_total_by_part(spec, spec.mtp).values())


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
    """How one weight is stored: in the checkpoint's format for its part, or in the model's dtype."""
    return _format(spec, weight).storage


def _format(spec: ModelSpec, weight: Weight) -> WeightFormat:
    if weight.part in _ALWAYS_FP32:
        return WeightFormat(FP32)
    quantization = spec.quantization
    own = WeightFormat(TORCH_DTYPES.get(spec.torch_dtype, FP16))
    if quantization is None or not weight.matrix or {weight.part, weight.name} & set(quantization.unquantized):
        return own
    formats = {p.part: p.weight_format for p in quantization.parts}
    name = formats.get(weight.part) or (None if weight.part == "head" else quantization.weight_format)
    return weight_format(name, where=f"{spec.name}: ") if name else own


def rank_bytes_of(spec: ModelSpec, weight: Weight, parallel: Parallelism) -> int:
    """Bytes of one weight on the fullest rank, scales included; experts stay whole under expert parallelism."""
    chosen = _format(spec, weight)
    numel = weight.numel_per_rank(parallel.tp, parallel.ep, tile=chosen.expert_tile)
    storage = chosen.storage
    if weight.inputs and storage.scale_bits and storage.group is None:
        return storage.vector_bytes(weight.inputs) * numel // weight.inputs
    return storage.vector_bytes(numel)


def _absorbed_bytes(spec: ModelSpec, weight: Weight, parallel: Parallelism) -> int:
    """The 16-bit copy that MLA decoding multiplies into queries and outputs; of a 16-bit kv_b_proj it is a view."""
    if weight.module != "kv_b_proj" or weight_storage(spec, weight).bits >= FP16.bits:
        return 0
    return FP16.vector_bytes(weight.numel_per_rank(parallel.tp))


def _layer_bytes(spec: ModelSpec, group: LayerGroup, parallel: Parallelism) -> Counter[str]:
    parts: Counter[str] = Counter()
    for weight in layer_weights(spec, group):
        parts[weight.part] += rank_bytes_of(spec, weight, parallel) + _absorbed_bytes(spec, weight, parallel)
    return parts


def _outer_bytes(spec: ModelSpec, parallel: Parallelism) -> Iterator[tuple[int, str, int]]:
    """(stage, part, bytes) of what stands beside the layers: the last stage of a tied model holds the table again."""
    last = parallel.pp - 1
    for weight in (*_tables(spec), *_others(o for o in spec.other_weights if o.held == "both")):
        size = rank_bytes_of(spec, weight, parallel)
        yield (last if weight.part in _LAST_STAGE else 0), weight.part, size
        if weight.part == "embedding" and spec.tie_word_embeddings and last:
            yield last, "embedding", size
    for weight in _others(o for o in spec.other_weights if o.held == "engine"):
        for stage in range(parallel.pp):
            yield stage, weight.part, rank_bytes_of(spec, weight, parallel)


@lru_cache(maxsize=1024)
def _fullest_stage(spec: ModelSpec, parallel: Parallelism, mtp: bool) -> Mapping[str, int]:
    """Bytes by part on a rank of the heaviest pipeline stage; multi-token prediction runs on the last."""
    stages: list[Counter[str]] = [Counter() for _ in range(parallel.pp)]
    layers = stage_layers(spec.num_hidden_layers, parallel.pp)
    for group in spec.layer_groups:
        parts = _layer_bytes(spec, group, parallel)
        for stage, span in zip(stages, layers, strict=True):
            count = sum(i in span for i in group.indices)
            stage.update({part: size * count for part, size in parts.items()})
    for index, part, size in _outer_bytes(spec, parallel):
        stages[index][part] += size
    for group in spec.mtp if mtp else ():
        size = sum(_layer_bytes(spec, group, parallel).values())
        stages[-1]["mtp"] += size * len(group.indices)
    return max(stages, key=lambda stage: stage.total())


def rank_bytes_by_part(spec: ModelSpec, parallel: Parallelism, *, mtp: bool = False) -> dict[str, int]:
    """Bytes of weights on the fullest rank by part, `mtp` with the multi-token prediction module."""
    return {part: size for part, size in _fullest_stage(spec, parallel, mtp).items() if size}


def rank_bytes(spec: ModelSpec, parallel: Parallelism, *, mtp: bool = False) -> int:
    """Bytes of weights on the fullest rank: the heaviest pipeline stage, embedding on the first, head on the last."""
    return sum(_fullest_stage(spec, parallel, mtp).values())
