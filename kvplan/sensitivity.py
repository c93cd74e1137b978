"""What one notch of each setting changes: the plan again with more or less of one thing and all else as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvplan.errors import KvplanError
from kvplan.mlp import MoeMlp
from kvplan.plan import Plan, Scenario, at_context, plan
from kvplan.units import format_tokens

UTILIZATION_NOTCH = 0.05
MOST_UTILIZATION = 0.99


@dataclass(frozen=True, slots=True)
class Notch:
    """One change, written as the option that makes it, and the plan then; or the engine's reason to refuse it."""

    change: str
    plan: Plan | None
    refusal: str = ""


def notches(p: Plan) -> tuple[Notch, ...]:
    """Parallelism, KV dtype, memory fraction and context, each moved by one notch where there is one."""
    return tuple(_moved(change, scenario) for change, scenario in _changes(p))


def _moved(change: str, scenario: Scenario) -> Notch:
    try:
        return Notch(change, plan(scenario))
    except KvplanError as refusal:
        return Notch(change, None, str(refusal))


def _changes(p: Plan) -> Iterator[tuple[str, Scenario]]:
    yield from _parallelism(p)
    yield _kv_dtype(p)
    yield from _utilization(p)
    yield from _contexts(p)


def _parallelism(p: Plan) -> Iterator[tuple[str, Scenario]]:
    """Twice and half the ranks of tensor parallelism; and half of them on the same GPUs, as more replicas."""
    s, parallel = p.scenario, p.deployment.parallel
    tp = parallel.tp
    yield f"--tp {2 * tp}", replace(s, tp=2 * tp, gpus=None)
    if tp % 2 == 0:
        yield f"--tp {tp // 2}", replace(s, tp=tp // 2, gpus=None)
        # Experts spread over all ranks, or replicas of attention would hold copies of them.
        has_experts = any(isinstance(group.mlp, MoeMlp) for group in p.deployment.spec.layer_groups)
        ep = max(parallel.ep, tp * parallel.dp) if has_experts else parallel.ep
        experts = f" --ep {ep}" if has_experts else ""
        replicas = replace(s, tp=tp // 2, dp=2 * parallel.dp, ep=ep, gpus=None)
        yield f"--tp {replicas.tp} --dp {replicas.dp}{experts}", replicas


def _kv_dtype(p: Plan) -> tuple[str, Scenario]:
    """Half the width of 16-bit formats, 16 bit for all narrower ones."""
    other = "fp8" if p.layout.kv_format.default.bits >= 16 else "bf16"
    return f"--kv-dtype {other}", replace(p.scenario, kv_dtype=other)


def _utilization(p: Plan) -> Iterator[tuple[str, Scenario]]:
    """The memory fraction, or what its default comes to, give or take 0.05; nothing where the pool is given."""
    if p.budget.given_pool_bytes is not None:
        return
    share = p.deployment.memory_fraction or p.budget.requested_bytes / p.budget.gpu_total_bytes
    for moved in (round(share + UTILIZATION_NOTCH, 2), round(share - UTILIZATION_NOTCH, 2)):
        if 0 < moved <= MOST_UTILIZATION:
            yield f"--gpu-memory-utilization {moved:g}", replace(p.scenario, gpu_memory_utilization=moved)


def _contexts(p: Plan) -> Iterator[tuple[str, Scenario]]:
    """Twice the maximum length, where the model reaches so far, and half of it."""
    tokens, longest = p.deployment.max_model_len, p.deployment.spec.max_position_embeddings
    if longest is None or 2 * tokens <= longest:
        yield f"--context {format_tokens(2 * tokens)}", at_context(p.scenario, 2 * tokens)
    if tokens > 1:
        yield f"--context {format_tokens(tokens // 2)}", at_context(p.scenario, tokens // 2)
