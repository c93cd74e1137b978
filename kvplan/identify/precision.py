"""The precision of the weights that were loaded, where a log says it: a quantized copy of a bundled model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kvplan.identify.names import repository
from kvplan.model import Quantization

if TYPE_CHECKING:
    from kvplan.logs.observed import Observed
    from kvplan.model import ModelSpec

_BY_NAME = (
    (re.compile(r"nvfp4|(?<!mx)fp4"), "nvfp4"),
    (re.compile(r"mxfp4"), "mxfp4"),
    (re.compile(r"mxfp8"), "mxfp8"),
    (re.compile(r"fp8"), "fp8"),
    (re.compile(r"w8a8|w8a16|int8|8-?bit"), "int8"),
    (re.compile(r"bnb|nf4"), "nf4"),
    (re.compile(r"w4a16|w4a8|int4|4-?bit|awq|gptq|autoround"), "int4"),
    (re.compile(r"bf16|fp16"), None),
)
_BY_FLAG = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8", "modelopt_fp4": "nvfp4", "petit_nvfp4": "nvfp4",
    "mxfp4": "mxfp4", "awq": "int4", "awq_marlin": "int4", "bitsandbytes": "nf4", "gptq": "int4",
    "gptq_marlin": "int4", "w8a8_int8": "int8", "w8a8_fp8": "fp8", "auto-round": "int4", "inc": "int4",
    "moe_wna16": "int4",
}  # fmt: skip
"""Engines' own names of a method (`--quantization`) whose width is fixed in practice."""
_KEPT = ("router", "head", "vision", "audio")
"""Parts that quantized copies leave in 16 bit."""


def as_loaded(spec: ModelSpec, observed: Observed) -> tuple[ModelSpec, tuple[str, ...]]:
    """`spec` with the weights that the log's name or `quantization` flag states; a note where that changes it."""
    stated = _stated(observed)
    if stated is None:
        return spec, ()
    weight_format, said = stated
    own = spec.quantization.weight_format if spec.quantization else None
    if (own or "").partition("_")[0] == (weight_format or ""):
        return spec, ()
    quantization = weight_format and Quantization(
        quant_method=weight_format, weight_format=weight_format, unquantized=_KEPT
    )
    bundled = f"{spec.name} is bundled in {own or spec.torch_dtype}"
    note = f"weights in {weight_format or spec.torch_dtype}, for the log says {said}; {bundled}"
    return replace(spec, quantization=quantization or None), (note,)


def _stated(observed: Observed) -> tuple[str | None, str] | None:
    """(weight format, where it is said); the name goes before the flag, for the flag names a method."""
    name = repository(observed.model or "").lower()
    for pattern, weight_format in _BY_NAME:
        if pattern.search(name):
            return weight_format, repr(observed.model)
    method = observed.flags.get("quantization")
    if isinstance(method, str) and method.lower() in _BY_FLAG:
        return _BY_FLAG[method.lower()], f"quantization={method}"
    return None
