"""KV dtypes under vLLM's names: what each means in storage, since which release, and what `auto` resolves to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.engines.vllm.versions import Rules
from kvplan.errors import UnknownName, Unsupported
from kvplan.storage import FORMATS, TORCH_DTYPES, KvFormat

if TYPE_CHECKING:
    from kvplan.model import ModelSpec

FP8_E4M3 = frozenset({"fp8", "fp8_e4m3"})
_UNQUANTIZED = frozenset({"auto", "bf16", "bfloat16", "fp16", "float16", "half"})
_SINCE = {
    "fp8_ds_mla": (0, 11), "turboquant_k8v4": (0, 20), "turboquant_4bit_nc": (0, 20), "turboquant_k3v4_nc": (0, 20),
    "turboquant_3bit_nc": (0, 20), "int8_per_token_head": (0, 20), "fp8_per_token_head": (0, 20), "nvfp4": (0, 20),
    "int4_per_token_head": (0, 25), "nvfp4_4over6": (0, 28), "nvfp4_ds_mla": (0, 30),
}  # fmt: skip
"""First release whose `--kv-cache-dtype` takes the name; the others have been there since 0.6."""
_STORED_AS = {"fp8_e4m3": "fp8", "nvfp4_4over6": "nvfp4"}
_MODELOPT_KV = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
NAMES = frozenset({*_UNQUANTIZED, "fp8", "fp8_e4m3", "fp8_e5m2", *_SINCE})


@dataclass(frozen=True, slots=True)
class KvDtype:
    """A KV dtype in force: `name` as vLLM has it (`auto` for the model's own), `stored` as `kvplan.storage` has it."""

    name: str
    stored: str

    @property
    def quantized(self) -> bool:
        """Whether it is narrower than the model's dtype."""
        return self.name != "auto"

    @property
    def format(self) -> KvFormat:
        """Storage of each role."""
        return FORMATS[self.stored]

    @property
    def even_slots(self) -> bool:
        """TurboQuant packs a head's K and V into one slot of an even number of bytes."""
        return self.name.startswith("turboquant_")


FP8_DS_MLA = KvDtype("fp8_ds_mla", "fp8_ds_mla")


def model_dtype(torch_dtype: str, asked: str, capability: tuple[int, int] | None) -> str:
    """The dtype that the model runs in: fp32 checkpoints run in bf16; GPUs before SM80 have no bf16."""
    name = TORCH_DTYPES[torch_dtype if asked == "auto" else asked].name
    if asked == "auto" and name == "fp32":
        name = "bf16"
    return "fp16" if name == "bf16" and capability is not None and capability < (8, 0) else name


@lru_cache(maxsize=256)
def kv_dtype(name: str, own: str, rules: Rules) -> KvDtype:
    """A `--kv-cache-dtype`; `own` is what unquantized means here."""
    key = name.lower()
    if key not in NAMES:
        raise UnknownName.of("vLLM kv dtype", name, NAMES)
    if rules.release < _SINCE.get(key, (0, 0)):
        since = ".".join(map(str, _SINCE[key]))
        raise Unsupported(f"vLLM {rules.release[0]}.{rules.release[1]}: kv dtype {name!r} exists since {since}")
    return KvDtype("auto", own) if key in _UNQUANTIZED else KvDtype(key, _STORED_AS.get(key, key))


def asked_by_checkpoint(spec: ModelSpec, rules: Rules) -> str:
    """The name that `auto` stands for: a checkpoint's own KV dtype where vLLM heeds it, else `auto`.

    modelopt's KV algorithm always counts; a compressed-tensors KV scheme counts for heads of K and V, not for MLA; what
    other methods say of KV is not read (`resolve_kv_cache_dtype_string`, `Attention.__init__`).
    """
    q = spec.quantization
    if q is None or q.kv_cache_dtype in (None, "none"):
        return "auto"
    if q.quant_method.startswith("modelopt"):
        return _MODELOPT_KV.get(q.kv_cache_dtype or "", "auto") if rules.modelopt_kv_dtype else "auto"
    return "fp8" if q.quant_method == "compressed-tensors" and spec.attention_family != "mla" else "auto"


def knows_packing(backend: str, kv: KvDtype) -> bool:
    """Whether a backend knows how this KV dtype is packed; fp8 needs no packing, others have one backend each."""
    packers = {"nvfp4": "FLASHINFER", "turboquant": "TURBOQUANT", "int4": "TRITON_ATTN", "int8": "TRITON_ATTN"}
    packer = packers.get(kv.name.split("_")[0]) or ("TRITON_ATTN" if kv.name == "fp8_per_token_head" else backend)
    return packer == backend
