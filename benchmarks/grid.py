"""A grid of 10 million (context, batch, tp) points of one hybrid model through the same core as a single answer.

    python benchmarks/grid.py [MODEL]

Prints CPU seconds, peak memory and points per CPU second; 1 if a bound does not hold (10 s CPU, 2 GiB).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from kvplan.catalog import load_model
from kvplan.model import session_bytes
from kvplan.parallel import Parallelism
from kvplan.storage import kv_format

TPS = (1, 2, 4, 8)
CONTEXTS, BATCHES = 25_000, 100


def main() -> int:
    """Evaluate the grid, check it against single answers, print the cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="qwen3-next-80b-a3b")
    spec = load_model(parser.parse_args().model)
    fmt = kv_format("bf16")
    contexts = np.linspace(1, 1_048_576, CONTEXTS).astype(np.int64)[:, None]
    batches = np.arange(1, BATCHES + 1, dtype=np.int64)[None, :]
    start = time.process_time()
    points = checksum = 0
    for tp in TPS:
        tokens = np.broadcast_to(contexts, (CONTEXTS, BATCHES))
        grid = session_bytes(spec, tokens, fmt, Parallelism(tp=tp)) * batches
        points += grid.size
        checksum ^= int(np.bitwise_xor.reduce(grid, axis=None))
    cpu_s = time.process_time() - start
    single = session_bytes(spec, int(contexts[-1, 0]), fmt, Parallelism(tp=TPS[-1])) * BATCHES
    if int(grid[-1, -1]) != single:
        sys.exit(f"the grid says {grid[-1, -1]}, a single answer {single}")
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    held = cpu_s <= 10 and peak_bytes <= 2 * 2**30
    print(
        f"{spec.name}: {points:,} points in {cpu_s:.2f} s CPU, {peak_bytes / 2**20:.0f} MiB peak, checksum {checksum:x}"
    )
    print(
        f"{points / cpu_s / 1e6:.1f} million points per CPU second; 10 s and 2 GiB: {'hold' if held else 'DO NOT HOLD'}"
    )
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
