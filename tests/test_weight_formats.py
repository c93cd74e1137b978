"""Names of weight formats."""

from __future__ import annotations

import pytest

from kvplan.errors import BadInput, UnknownName
from kvplan.weight_formats import FORMATS, weight_format


def test_a_group_may_stand_in_the_name() -> None:
    usual, smaller = weight_format("int4").storage, weight_format("int4_g64").storage
    assert (usual.group, smaller.group) == (128, 64)
    assert smaller.vector_bytes(64) == 32 + 3  # a 16-bit scale and a 4-bit zero, rounded up to bytes


@pytest.mark.parametrize("name", ["fp8_g0", "fp8_g64", "bf16_g32"])
def test_groups_need_scales(name: str) -> None:
    with pytest.raises(BadInput, match=name):
        weight_format(name)


def test_an_unknown_name_is_told_its_neighbours() -> None:
    with pytest.raises(UnknownName, match="nvfp4"):
        weight_format("nvfp5")


def test_every_format_is_smaller_than_fp32() -> None:
    wide = FORMATS["fp32"].storage.vector_bytes(4096)
    assert all(f.storage.vector_bytes(4096) < wide for name, f in FORMATS.items() if name != "fp32")
