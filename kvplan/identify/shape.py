"""The geometry that GGUF metadata state, held against bundled models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.model import ModelSpec

_FACTS: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("block_count", "n_layer"),
    "hidden_size": ("embedding_length", "n_embd"),
    "num_attention_heads": ("attention.head_count", "n_head"),
    "num_key_value_heads": ("attention.head_count_kv", "n_head_kv"),
    "head_dim": ("attention.key_length", "n_embd_head_k"),
    "kv_lora_rank": ("attention.kv_lora_rank", "n_lora_kv"),
    "sliding_window": ("attention.sliding_window", "n_swa"),
    "num_experts": ("expert_count", "n_expert"),
}
"""HF's names -> the keys of GGUF files (`qwen3.block_count`) and of llama.cpp's `print_info`."""
_NONE = frozenset({0})


@dataclass(frozen=True, slots=True)
class Shape:
    """Facts under HF's names -> the values stated: one, or those of a list over the layers."""

    facts: Mapping[str, frozenset[int]]

    @property
    def tells(self) -> bool:
        """Whether it says enough to find a model by."""
        return {"num_hidden_layers", "hidden_size"} <= set(self.facts)

    def fits(self, spec: ModelSpec) -> bool:
        """Whether nothing stated contradicts the model."""
        return all(not (own := _own(spec, name)) or stated <= own for name, stated in self.facts.items())


def shape_of(metadata: Mapping[str, Any]) -> Shape:
    """What `metadata` state; of a list that the log cut short, the values before the cut."""
    prefix = f"{metadata.get('general.architecture', '')}."
    facts = {}
    for name, keys in _FACTS.items():
        found = (metadata.get(key) for plain in keys for key in (prefix + plain, plain))
        stated = next((value for value in found if value is not None), None)
        values = [v for v in stated if v] if isinstance(stated, list) else [stated]
        if whole := frozenset(v for v in values if type(v) is int):
            facts[name] = whole
    return Shape(facts)


def _own(spec: ModelSpec, name: str) -> frozenset[int]:
    """The model's values of a fact; empty where they cannot be compared: GGUF files write MLA's K heads in two ways."""
    if name == "num_hidden_layers":
        drafts = sum(len(group.indices) for group in spec.mtp)
        return frozenset({spec.num_hidden_layers, spec.num_hidden_layers + drafts})
    if name == "hidden_size":
        return frozenset({spec.hidden_size})
    if name == "num_experts":
        return frozenset(n for group in spec.layer_groups if (n := getattr(group.mlp, name, 0))) or _NONE
    found = frozenset(value for _, a in spec.mixers() if (value := getattr(getattr(a, "source", a), name, None)))
    if name in {"kv_lora_rank", "sliding_window"}:
        return found or _NONE
    latent = any(attention.family == "mla" for _, attention in spec.mixers())
    return frozenset() if latent and name != "num_attention_heads" else found
