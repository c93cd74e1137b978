"""What a checkpoint says of its precision: of its weights, and separately of its KV cache.

FP8 weights never imply an FP8 cache: only `kv_cache_scheme` (compressed-tensors, modelopt) and `kv_cache_quant_algo`
(modelopt, in config.json or in hf_quant_config.json beside it) speak of KV, and an explicit null there is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvplan.hf.fields import Fields
from kvplan.model import Quantization

_KV_SCHEMES = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "nvfp4", (4, "int"): "int4"}
_KV_ALGORITHMS = {"fp8": "fp8", "nvfp4": "nvfp4", "int8": "int8", "none": "none"}
_METHOD_FORMATS = {"fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "fp8": "fp8", "finegrained_fp8": "fp8", "modelopt_fp4": "nvfp4"}
_SKIPPED_KEYS = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "llm_int8_skip_modules")
_LAYER = re.compile(r"^(?:.*\.)?(?:layers|blocks|h)\.(\d+)\b\.?(.*)$")
_WRAPPING = re.compile(r"^(re:)?\^?(\.\*)?\\?\.?(model|language_model|backbone|transformer)\.")
_NEVER_QUANTIZED = re.compile(r"norm|bias|conv1d|A_log|\bD$|hc_|sinks?$|visual|vision|projector|merger|audio|mlp1|^$")


def quantization(
    nodes: Sequence[Mapping[str, Any]], beside: Mapping[str, Any] | None, where: str
) -> Quantization | None:
    """From `quantization_config` of the first of `nodes` that has one (wrapper, then decoder), and from the JSON
    `beside` the config (hf_quant_config.json). None where neither says anything."""
    raw: Any = next((n["quantization_config"] for n in nodes if n.get("quantization_config") is not None), {})
    inside = Fields({"quantization_config": raw}, where).section("quantization_config")
    outside = Fields(beside or {"quantization": {}}, "hf_quant_config.json").section("quantization")
    sections = [s for s in (inside, outside) if s is not None and s.raw]
    if not sections:
        return None
    method = _first(s.text("quant_method") for s in sections) or "modelopt"
    return Quantization(
        quant_method=method,
        weight_format=_first(_weight_format(s) for s in sections) or _METHOD_FORMATS.get(method),
        expert_format=_expert_format(nodes, sections),
        block=_first(_block(s) for s in sections),
        unquantized=_skipped(s for s in sections),
        kv_cache_dtype=_kv_dtype(sections),
    )


def _first(values: Iterable[Any]) -> Any:
    return next((v for v in values if v is not None), None)


def _weights(section: Fields) -> Fields | None:
    """The weight scheme of the first group of compressed-tensors or modelopt."""
    groups = section.section("config_groups")
    first = groups.section(next(iter(groups.raw))) if groups is not None and groups.raw else None
    return first.section("weights") if first is not None else None


def _weight_format(section: Fields) -> str | None:
    algorithm = section.text("quant_algo")
    if algorithm:
        return {"MIXED_PRECISION": "mixed"}.get(algorithm, algorithm.lower())
    if section.text("format") == "mxfp4-pack-quantized":
        return "mxfp4"
    weights = _weights(section)
    if weights is not None:
        return f"{'fp' if weights.text('type') == 'float' else 'int'}{weights.count('num_bits', 8)}"
    bits = section.count("bits")
    if bits:
        return f"int{bits}"
    return "nf4" if section.flag("load_in_4bit") else "int8" if section.flag("load_in_8bit") else None


def _block(section: Fields) -> tuple[int, ...] | None:
    sizes = section.sequence("weight_block_size")
    if sizes and all(isinstance(s, int) and 0 < s < 2**16 for s in sizes):
        return tuple(sizes)
    weights = _weights(section)
    group = section.count("group_size", least=-1) or (weights.count("group_size", least=-1) if weights else None)
    return (group,) if group and group > 0 else None


def _expert_format(nodes: Sequence[Mapping[str, Any]], sections: Sequence[Fields]) -> str | None:
    """What routed experts are stored in, where that differs: DeepSeek-V4 keeps them in FP4 beside FP8 weights."""
    stated = _first(n.get("expert_dtype") for n in nodes) or _first(s.text("moe_quant_algo") for s in sections)
    if isinstance(stated, str):
        return stated.lower()
    for section in sections:
        layers = section.section("quantized_layers")
        for name, scheme in layers.raw.items() if layers is not None else ():
            if "experts" in name and "shared" not in name and isinstance(scheme, Mapping):
                return str(scheme.get("quant_algo")).lower()
    return None


def _skipped(sections: Iterable[Fields]) -> tuple[str, ...]:
    """Modules kept in the model's dtype, without what every checkpoint keeps so, layers folded into one name."""
    names = (n for s in sections for key in _SKIPPED_KEYS for n in s.sequence(key) or ())
    return tuple(sorted({_part(n) for n in names if isinstance(n, str)} - {""}))


def _part(name: str) -> str:
    name = _WRAPPING.sub("", name)
    layer = _LAYER.match(name)
    tail = layer[2] if layer else name
    part = tail.replace("re:", "").replace(".*", "").replace("\\.", ".").strip("*.^$")
    if layer and not part:
        return f"layers.{layer[1]}"
    return "" if _NEVER_QUANTIZED.search(part) else part


def _kv_dtype(sections: Sequence[Fields]) -> str | None:
    """A KV dtype that the checkpoint asks for; `none` where it states null; None where it is silent."""
    silent = True
    for section in sections:
        for key in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method"):
            if key not in section.raw:
                continue
            silent = False
            if section.raw[key] is not None:
                return _scheme(section, key)
    return None if silent else "none"


def _scheme(section: Fields, key: str) -> str:
    value = section.value(key)
    if isinstance(value, str):
        dtype = _KV_ALGORITHMS.get(value.lower())
    else:
        scheme = section.section(key)
        dtype = _KV_SCHEMES.get((scheme.count("num_bits", 8) or 8, scheme.text("type") or "float")) if scheme else None
    if dtype is None:
        raise section.bad(key, "is not a KV precision that is known (fp8, int8, nvfp4, int4 or null)")
    return dtype
