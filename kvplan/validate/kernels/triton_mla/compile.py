"""The device code without a device: compile a tile for an architecture, and read what ptxas made of it.

Arguments are those of a launch, on tensors without memory, so what is compiled here is what runs there.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.backends.nvidia.compiler import get_ptxas  # type: ignore[import-untyped]
from triton.compiler import ASTSource  # type: ignore[import-untyped]
from triton.compiler import compile as compile_source
from triton.runtime.jit import mangle_type  # type: ignore[import-untyped]

from kvplan.errors import Unsupported
from kvplan.validate.kernels.triton_mla.configs import LATENT_DIM, ROPE_DIM, DecodePlan, DecodeShape, Tile, record_bytes
from kvplan.validate.kernels.triton_mla.kernels import merge_splits, split_kv_decode
from kvplan.validate.kernels.triton_mla.launch import (
    INTERPRETED,
    QUERY_DTYPES,
    DecodeInputs,
    decode_arguments,
    merge_arguments,
    results,
)

_WARP_THREADS = 32
_ALIGNMENT = 16
_MMA = {"wgmma.mma_async": "wgmma", "tcgen05.mma": "tcgen05", "mma.sync": "mma.sync"}


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a tile costs on an architecture, and the assembly to look into."""

    shared_bytes: int
    registers: int
    spill_bytes: int
    mma: str
    ptx: str


def compile_decode(tile: Tile, shape: DecodeShape, capability: int, num_splits: int = 2) -> Compiled:
    """Stage 1 of a shape for a capability such as 90; `Unsupported` under the interpreter."""
    inputs = _inputs(shape)
    plan = DecodePlan(tile, row_blocks=1, num_splits=num_splits, ctas_per_sm=1, scratch_bytes=0)
    out, lse = results(inputs, num_splits)
    arguments = {**decode_arguments(inputs, plan), "out_ptr": out, "lse_ptr": lse}
    options = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
    return _compile(split_kv_decode, arguments, capability, options)


def compile_merge(shape: DecodeShape, capability: int, num_splits: int = 2) -> Compiled:
    """Stage 2 of a shape."""
    inputs = _inputs(shape)
    (partial, partial_lse), (out, lse) = results(inputs, num_splits), results(inputs, 1)
    tensors = {"partial_ptr": partial, "partial_lse_ptr": partial_lse, "out_ptr": out, "lse_ptr": lse}
    return _compile(merge_splits, {**tensors, **merge_arguments(partial_lse)}, capability, {})


def _inputs(shape: DecodeShape) -> DecodeInputs:
    """Tensors of the shape that have a type and strides but no memory."""
    blocks = shape.batch if shape.block_size is None else shape.batch * 2
    slots = shape.block_size or shape.max_seq_len_tokens
    head = (shape.batch, shape.query_tokens, shape.num_heads)
    query_dtype = next(dtype for dtype, name in QUERY_DTYPES.items() if name == shape.query_dtype)
    with torch.device("meta"):
        return DecodeInputs(
            q_latent=torch.empty(*head, LATENT_DIM, dtype=query_dtype),
            q_rope=torch.empty(*head, ROPE_DIM, dtype=query_dtype),
            cache=torch.empty(blocks, slots, record_bytes(shape.kv_dtype), dtype=torch.uint8),
            seq_lens=torch.empty(shape.batch, dtype=torch.int32),
            block_table=None if shape.block_size is None else torch.empty(shape.batch, 2, dtype=torch.int32),
            softmax_scale=192**-0.5,
            kv_dtype=shape.kv_dtype,
        )


def _compile(kernel: Any, arguments: dict[str, Any], capability: int, options: dict[str, int]) -> Compiled:
    if INTERPRETED:
        raise Unsupported("nothing is compiled under TRITON_INTERPRET; unset it before triton is imported")
    target = GPUTarget("cuda", capability, _WARP_THREADS)
    compiled = compile_source(_source(kernel, arguments), target=target, options=options)
    ptx = compiled.asm["ptx"]
    registers, spill_bytes = _assemble(ptx, capability)
    mma = next((name for instruction, name in _MMA.items() if instruction in ptx), "fma")
    return Compiled(compiled.metadata.shared, registers, spill_bytes, mma, ptx)


def _source(kernel: Any, arguments: dict[str, Any]) -> ASTSource:
    """The kernel, specialised as a launch does it: 1 and None are constants, multiples of 16 are known as such."""
    types = {p.name: "constexpr" if p.is_constexpr else mangle_type(arguments[p.name]) for p in kernel.params}
    constants = {name: arguments[name] for name, type_ in types.items() if type_ == "constexpr"}
    aligned = [position for position, (name, type_) in enumerate(types.items()) if _is_aligned(type_, arguments[name])]
    attributes = {(position,): [["tt.divisibility", _ALIGNMENT]] for position in aligned}
    return ASTSource(kernel, types, constants, attributes)


def _is_aligned(type_: str, value: Any) -> bool:
    return type_.startswith("*") or (type_.startswith("i") and value % _ALIGNMENT == 0)


def _assemble(ptx: str, capability: int) -> tuple[int, int]:
    """(registers of a thread, bytes that it spills), from `ptxas -v` with the option that triton adds."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        target = re.findall(r"^\.target (\w+)", ptx, re.MULTILINE)[0]
        command = [get_ptxas(capability).path, "-v", "--regAllocOptLevel=2", f"--gpu-name={target}", source]
        done = subprocess.run([*command, "-o", source.with_suffix(".o")], capture_output=True, text=True, check=True)
    registers = re.findall(r"Used (\d+) registers", done.stderr)[0]
    spilled = re.findall(r"(\d+) bytes spill stores", done.stderr)[0]
    return int(registers), int(spilled)
