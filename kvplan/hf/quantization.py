"""What a checkpoint says of its precision: of its weights, and separately of its KV cache.

FP8 weights never imply an FP8 cache: only `kv_cache_scheme` (compressed-tensors, modelopt) and `kv_cache_quant_algo`
(modelopt, in config.json or in hf_quant_config.json beside it) speak of KV, and an explicit null there is an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kvplan.hf.fields import Fields
from kvplan.hf.modules import mixed_formats, unquantized_parts
from kvplan.model import PartFormat, Quantization

T = TypeVar("T")
_KV_SCHEMES = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (4, "int"): "int4"}
_KV_ALGORITHMS = {"fp8": "fp8", "nvfp4": "nvfp4", "int8": "int8", "none": "none"}
_KV_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo")
_METHODS = {"fbgemm_fp8": "fp8", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4", "bitsandbytes": "int8", "modelopt": None}
_ALGORITHMS = {
    "fp8": "fp8", "fp8_pb_wo": "fp8_block", "fp8_per_channel_per_token": "fp8", "nvfp4": "nvfp4",
    "nvfp4_awq": "nvfp4", "w4a16_nvfp4": "nvfp4", "mxfp8": "mxfp8", "mxfp4": "mxfp4", "w4a16_awq": "int4",
    "w4a8_awq": "int4", "int8_sq": "int8",
}  # fmt: skip
_EXPERT_DTYPES = {"fp4": "mxfp4", "nvfp4": "nvfp4"}
"""DeepSeek-V4's fp4 experts are e2m1 with one 8-bit exponent for 32 elements (vLLM reads them as MXFP4)."""


def quantization(
    nodes: Sequence[Mapping[str, Any]], beside: Mapping[str, Any] | None, where: str
) -> Quantization | None:
    """From `quantization_config` of the first of `nodes` that has one (wrapper, then decoder), and from the JSON
    `beside` the config (hf_quant_config.json). None where neither says anything."""
    raw: Any = next((n["quantization_config"] for n in nodes if n.get("quantization_config") is not None), {})
    inside = Fields({"quantization_config": raw}, where).section("quantization_config")
    outside = Fields(beside or {}, "hf_quant_config.json").section("quantization")
    sections = [s for s in (inside, outside) if s is not None and s.raw]
    if not sections:
        return None
    layered = [s.raw["quantized_layers"] for s in sections if isinstance(s.raw.get("quantized_layers"), Mapping)]
    by_part = {p: _ALGORITHMS.get(a, a) for p, a in mixed_formats(layered).items()}
    stating = (*nodes, *(s.raw for s in sections))
    expert = _first(_EXPERT_DTYPES.get(str(n.get("expert_dtype"))) for n in stating)
    parts = ({"experts": expert} if expert else {}) | by_part
    stated = _first(_weight_format(s) for s in sections)
    whole = stated or _most_common(by_part)
    return Quantization(
        quant_method=_first(s.text("quant_method") for s in sections) or ("modelopt" if outside else ""),
        weight_format=whole,
        block=_first(_block(s) for s in sections),
        parts=tuple(PartFormat(part=p, weight_format=f) for p, f in sorted(parts.items()) if f != whole),
        # beside layers of another format, the list of skipped modules is of that format alone
        unquantized=() if stated and by_part else tuple(p for p in unquantized_parts(sections) if p not in parts),
        kv_cache_dtype=_kv_dtype(sections),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((v for v in values if v is not None), None)


def _most_common(by_part: Mapping[str, str]) -> str | None:
    """The format of most parts other than routed experts, which are listed in any case."""
    formats = [f for part, f in by_part.items() if part != "experts"]
    return max(formats, key=formats.count, default=None)


def _scheme(section: Fields) -> Fields | None:
    """The weight scheme of the first group of compressed-tensors or modelopt."""
    groups = section.section("config_groups")
    first = groups.section(next(iter(groups.raw))) if groups is not None and groups.raw else None
    return first.section("weights") if first is not None else None


def _weight_format(section: Fields) -> str | None:
    """One of the formats of `kvplan.weights`, or the config's own word where it is none of them."""
    algorithm, method = section.text("quant_algo"), section.text("quant_method")
    if algorithm and algorithm != "MIXED_PRECISION":
        return _ALGORITHMS.get(algorithm.lower(), algorithm.lower())
    block = _block(section)
    if method in ("fp8", "finegrained_fp8"):
        return "fp8" if block is None else "mxfp8" if max(block) == 32 else "fp8_block"
    if algorithm:
        return None
    if (section.text("format") or "").startswith("mxfp4"):
        return "mxfp4"
    bits, kind = _bits(section)
    if bits == 4 and kind == "int":
        return "int4_g32" if block == (32,) else "int4"
    if bits:
        return {(8, "float"): "fp8", (4, "float"): "nvfp4"}.get((bits, kind), f"{kind}{bits}")
    return "nf4" if section.flag("load_in_4bit") else _METHODS.get(method or "", method)


def _bits(section: Fields) -> tuple[int | None, str]:
    """Bits of a weight and their kind, of compressed-tensors, AWQ or GPTQ."""
    scheme = _scheme(section)
    if scheme is not None:
        return scheme.count("num_bits"), scheme.text("type") or "int"
    return section.count("bits"), "int"


def _block(section: Fields) -> tuple[int, ...] | None:
    sizes = section.sequence("weight_block_size")
    if sizes:
        if not all(isinstance(s, int) and 0 < s < 2**16 for s in sizes):
            raise section.bad("weight_block_size", "is not a list of block sizes")
        return tuple(sizes)
    scheme = _scheme(section)
    group = section.count("group_size", least=-1) or (scheme.count("group_size", least=-1) if scheme else None)
    return (group,) if group and group > 0 else None


def _kv_dtype(sections: Sequence[Fields]) -> str | None:
    """A KV dtype that the checkpoint asks for; `none` where it states null; None where it is silent."""
    stated = [(s, key) for s in sections for key in _KV_KEYS if key in s.raw]
    for section, key in stated:
        if section.raw[key] is not None:
            return _kv_scheme(section, key)
    return "none" if stated else None


def _kv_scheme(section: Fields, key: str) -> str:
    value = section.value(key)
    if isinstance(value, str):
        dtype = _KV_ALGORITHMS.get(value.lower())
    else:
        scheme = section.section(key)
        dtype = _KV_SCHEMES.get((scheme.count("num_bits", 8) or 8, scheme.text("type") or "float")) if scheme else None
    if dtype is None:
        raise section.bad(key, "is not a KV precision that is known (fp8, int8, nvfp4, int4 or null)")
    return dtype
