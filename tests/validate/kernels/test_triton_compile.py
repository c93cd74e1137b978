"""The device code as sm_80, sm_90 and sm_100 would run it, read from what the compiler made."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra `validate` is not installed")
pytest.importorskip("triton", reason="the extra `validate` is not installed")

from kvplan.validate.kernels.triton_mla.configs import TILES, Tile

WORKER = Path(__file__).with_name("triton_compile_worker.py")
HOPPER = [
    (f"90-{kv_dtype}-{index}", tile)
    for kv_dtype, kind in [("bf16", "16-bit"), ("fp8", "fp8"), ("fp8_ds_mla", "fp8_ds_mla"), ("fp32", "fp32")]
    for index, tile in enumerate(TILES["hopper"][kind])
]
OTHERS = [
    *((f"80-bf16-{index}", tile) for index, tile in enumerate(TILES["generic"]["16-bit"])),
    ("89-fp8-0", TILES["generic"]["fp8"][0]),
    *((f"100-bf16-{index}", tile) for index, tile in enumerate(TILES["blackwell"]["16-bit"])),
    ("100-fp8-0", TILES["blackwell"]["fp8"][0]),
]
LIMIT_BYTES = {"80": 166_912, "89": 101_376, "90": 232_448, "100": 232_448}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case compiles to, with an empty cache."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    done = subprocess.run([sys.executable, str(WORKER)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("case", "tile"), HOPPER + OTHERS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_tile_costs_what_the_table_says_and_fits(compiled: dict[str, dict[str, Any]], case: str, tile: Tile) -> None:
    found = compiled[case]
    assert found["shared_bytes"] == tile.shared_bytes <= LIMIT_BYTES[case.partition("-")[0]]
    assert found["registers"] <= tile.registers


@pytest.mark.parametrize("case", [case for case, _ in HOPPER] + ["90-bf16-0-speculative", "80-bf16-0", "80-bf16-2"])
def test_nothing_is_spilled(compiled: dict[str, dict[str, Any]], case: str) -> None:
    assert compiled[case]["spill_bytes"] == 0


def test_99_kib_hold_a_tile_for_many_and_one_for_few_rows(compiled: dict[str, dict[str, Any]]) -> None:
    assert max(compiled[case]["shared_bytes"] for case in ("80-bf16-1", "80-bf16-2")) <= 99 * 1024


@pytest.mark.parametrize(
    ("case", "mma"),
    [
        ("90-bf16-0", "wgmma"), ("90-bf16-1", "wgmma"), ("90-bf16-2", "wgmma"), ("90-fp8-0", "wgmma"),
        ("90-fp8_ds_mla-0", "wgmma"), ("90-bf16-4", "mma.sync"), ("80-bf16-0", "mma.sync"), ("100-bf16-0", "tcgen05"),
        ("100-fp8-0", "tcgen05"), ("90-fp32-0", "fma"), ("90-merge", "fma"),
    ],
)  # fmt: skip
def test_matrix_instructions(compiled: dict[str, dict[str, Any]], case: str, mma: str) -> None:
    """64 and 128 heads run the first of Hopper's tiles."""
    assert compiled[case]["mma"] == mma


@pytest.mark.parametrize("case", ["90-bf16-0", "90-bf16-0-speculative"])
def test_no_warp_group_repeats_the_products_of_the_other(compiled: dict[str, dict[str, Any]], case: str) -> None:
    """64 x 64 scores over 576 are 36 products of 64 x 32 x 16 for each of two groups, the values 4 of 64 x 256 x 16;
    once in the loop and once for the last tile."""
    ptx = compiled[case]["ptx"]
    assert len(re.findall(r"wgmma\.mma_async\S*\.m64n32k16\.", ptx)) == 2 * 36
    assert len(re.findall(r"wgmma\.mma_async\S*\.m64n256k16\.", ptx)) == 2 * 4


@pytest.mark.parametrize(("case", "by_descriptor"), [("90-bf16-0", True), ("90-bf16-2", False), ("90-bf16-4", False)])
def test_copies_are_asynchronous(compiled: dict[str, dict[str, Any]], case: str, by_descriptor: bool) -> None:
    """A tile is copied by two instructions (latent and rotary part), or by 16-byte copies through pointers."""
    ptx = compiled[case]["ptx"]
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.2d", ptx)) == (3 * 2 if by_descriptor else 0)
    assert ("cp.async.cg.shared.global" in ptx) is not by_descriptor


@pytest.mark.parametrize("capability", [80, 90, 100])
def test_the_merge_spills_nothing(compiled: dict[str, dict[str, Any]], capability: int) -> None:
    assert compiled[f"{capability}-merge"]["spill_bytes"] == 0
