"""Full fits per CPU second, plain and hybrid, and points per CPU second of grids over context, batch and utilization.

    python benchmarks/fits.py

A full fit is `kvplan.plan.plan`: layout, budget, capacity, answers, decode speed. Bounds: 20,000 a second on plain
models, 3,000 on hybrids; grids 5 million points.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import product

import numpy as np

from kvplan.catalog import load_gpu, load_model
from kvplan.plan import Scenario, plan

MODELS = {
    "llama-3.1-70b": (8, 20_000),
    "qwen3-8b": (1, 20_000),
    "gemma-3-27b": (2, 3_000),
    "qwen3-next-80b-a3b": (4, 3_000),
}
CONTEXTS = range(4096, 32768, 1024)
UTILIZATIONS = tuple(0.70 + 0.01 * i for i in range(25))
BATCH_LIMITS = (64, 256, 1024)


def fits_per_s(model: str, tp: int) -> float:
    """Scenarios of one model over context, utilization and max_num_seqs."""
    base = Scenario(model=load_model(model), gpu=load_gpu("h200"), tp=tp)
    scenarios = [
        replace(base, context=c, gpu_memory_utilization=u, max_num_seqs=s)
        for c, u, s in product(CONTEXTS, UTILIZATIONS, BATCH_LIMITS)
    ]
    plan(scenarios[0])  # modules and the model's operations are loaded once a process
    start = time.process_time()
    for scenario in scenarios:
        plan(scenario)
    return len(scenarios) / (time.process_time() - start)


def points_per_s(model: str, tp: int) -> float:
    """max_batch over 5 million (pool, context) points in array calls."""
    layout = plan(Scenario(model=load_model(model), gpu=load_gpu("h200"), tp=tp, context=131072)).layout
    pools = np.linspace(2**32, 2**37, 2500).astype(np.int64)[:, None]
    contexts = np.linspace(1, 131072, 2000).astype(np.int64)[None, :]
    start = time.process_time()
    grid = layout.max_batch(*np.broadcast_arrays(pools, contexts))
    cpu_s = time.process_time() - start
    middle = layout.max_batch(int(pools[1250, 0]), int(contexts[0, 1000]))
    if int(np.asarray(grid)[1250, 1000]) != middle:
        sys.exit(f"{model}: the grid differs from a single answer")
    return float(np.asarray(grid).size / cpu_s)


def main() -> int:
    """Print one line per model; 1 if a bound does not hold."""
    failed = 0
    for model, (tp, bound) in MODELS.items():
        rate, points = fits_per_s(model, tp), points_per_s(model, tp)
        held = rate >= bound and points >= 5e6
        failed += not held
        print(
            f"{model:<20} {rate:>8,.0f} fits per CPU second (at least {bound:,}), {points / 1e6:6.1f} million points "
            f"(at least 5): {'hold' if held else 'DO NOT HOLD'}"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
