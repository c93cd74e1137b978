"""One process of a gloo group, started by test_ranks.py; rank 0 prints the checks of all ranks as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import torch
from conftest import small_mla

from kvplan.validate.ranks import check_ranks, process_group

torch.set_num_threads(1)
with process_group("cpu") as group:
    memory, numerics = check_ranks(small_mla(), group)
if group.rank == 0:
    rows = [[asdict(c) | {"ok": c.ok} for c in checks] for checks in (memory, numerics)]
    print(json.dumps(rows))  # noqa: T201
