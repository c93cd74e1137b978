"""What would make a plan fit: the changes that an operator can make, tried one by one and ranked by what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvplan.errors import KvplanError
from kvplan.plan import Plan, Scenario, plan
from kvplan.units import format_tokens


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that works, with the sessions that fit afterwards."""

    change: str
    max_batch: int
    scenario: Scenario


def remedies(p: Plan) -> tuple[Remedy, ...]:
    """Changes that make `p` fit, from those that cost nothing to those that cost GPUs."""
    found = []
    for change, scenario in _candidates(p):
        try:
            changed = plan(scenario)
        except KvplanError:
            continue  # the engine refuses this change: it is no remedy
        if changed.fits:
            found.append(Remedy(change, changed.max_batch, scenario))
    return tuple(sorted(found, key=lambda remedy: remedy.scenario.parallelism().gpus))


def _candidates(p: Plan) -> Iterator[tuple[str, Scenario]]:
    """Free settings first, then shorter contexts, then coarser weights of evidence: more GPUs."""
    s, d = p.scenario, p.deployment
    parallel = d.parallel
    if s.kv_dtype in {"auto", "bf16", "fp16"}:
        yield "--kv-dtype fp8", replace(s, kv_dtype="fp8")
    if p.max_context_tokens:
        yield f"--context {format_tokens(p.max_context_tokens)}", replace(s, context=p.max_context_tokens)
    if s.kv_pool_bytes is None:
        yield "--max-num-batched-tokens 2048", replace(s, max_num_batched_tokens=2048)
        yield "--max-num-seqs 64", replace(s, max_num_seqs=64)
        yield "--gpu-memory-utilization 0.95", replace(s, gpu_memory_utilization=0.95)
        for factor in (2, 4, 8):
            tp = parallel.tp * factor
            yield f"--tp {tp} on {parallel.gpus * factor} GPUs", replace(s, tp=tp, gpus=None)
        yield (
            f"--pp {parallel.pp * 2} on {parallel.gpus * 2} GPUs",
            replace(s, tp=parallel.tp, pp=parallel.pp * 2, gpus=None),
        )


def smallest_gpus(p: Plan, limit: int = 64) -> int | None:
    """The least TP (a power of two, same type of GPU) at which the engine starts; None up to `limit`."""
    tp = 1
    while tp <= limit:
        try:
            if plan(replace(p.scenario, tp=tp, gpus=None, pp=1, dp=1, dcp=1)).fits:
                return tp
        except KvplanError:
            pass  # a TP that the engine refuses is not an answer
        tp *= 2
    return None
