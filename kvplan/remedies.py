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
        along_pp = p.engine.gpu_axis == "pp"
        for factor in () if along_pp else (2, 4, 8):
            tp = parallel.tp * factor
            yield f"--tp {tp} on {parallel.gpus * factor} GPUs", replace(s, tp=tp, pp=parallel.pp, gpus=None)
        for factor in (2, 4, 8) if along_pp else (2,):
            pp = parallel.pp * factor
            yield f"--pp {pp} on {parallel.gpus * factor} GPUs", replace(s, tp=parallel.tp, pp=pp, gpus=None)


def smallest_gpus(p: Plan, limit: int = 64) -> int | None:
    """The least GPUs (a power of two, along the engine's axis) on which the engine starts; None up to `limit`."""
    gpus = 1
    while gpus <= limit:
        try:
            if plan(replace(p.scenario, gpus=gpus, tp=None, pp=1, dp=1, dcp=1, ep=1)).fits:
                return gpus
        except KvplanError:
            pass  # a spread that the engine refuses is not an answer
        gpus *= 2
    return None
