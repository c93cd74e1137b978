"""Compiles the device code for several architectures and answers on stdout: {case id: what it became}.

A process of its own, because triton decides on import whether it compiles or interprets.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from kvplan.validate.kernels.triton_mla.compile import compile_decode, compile_merge
from kvplan.validate.kernels.triton_mla.configs import TILES, DecodeShape, Family

FAMILY_OF: dict[int, Family] = {80: "generic", 89: "generic", 90: "hopper", 100: "blackwell"}


def case(capability: int, kv_dtype: str, index: int, *, speculative: bool = False) -> dict[str, object]:
    """One tile of `TILES`: in bf16 with a split context, or with two query tokens and an undivided one."""
    kind = "16-bit" if kv_dtype == "bf16" else kv_dtype
    tile = TILES[FAMILY_OF[capability]][kind][index]
    shape = DecodeShape(
        batch=8,
        num_heads=128,
        max_seq_len_tokens=8192,
        query_tokens=2 if speculative else 1,
        kv_dtype=kv_dtype,
        query_dtype="fp32" if kv_dtype == "fp32" else "bf16",
        block_size=next(size for size in (64, 32, 16) if tile.suits(size)),
    )
    return asdict(compile_decode(tile, shape, capability, num_splits=1 if speculative else 2))


def main() -> None:
    """Every tile of Hopper; the bf16 tiles, and one fp8 tile, of the others; the merge."""
    found = {
        f"{capability}-{kv_dtype}-{index}": case(capability, kv_dtype, index)
        for capability, kv_dtype, tiles in [
            (90, "bf16", 5), (90, "fp8", 2), (90, "fp8_ds_mla", 2), (90, "fp32", 1),
            (80, "bf16", 3), (89, "fp8", 1), (100, "bf16", 2), (100, "fp8", 1),
        ]
        for index in range(tiles)
    }  # fmt: skip
    found["90-bf16-0-speculative"] = case(90, "bf16", 0, speculative=True)
    shape = DecodeShape(batch=8, num_heads=128, max_seq_len_tokens=8192)
    found |= {f"{capability}-merge": asdict(compile_merge(shape, capability, 16)) for capability in (80, 90, 100)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
