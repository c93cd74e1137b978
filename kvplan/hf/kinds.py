"""Which rule reads which model_type: the table of families.

A family says which type each layer has (`Types`) and what each type builds (`Maker`s). Models of one cause share one
line; nothing here knows a single file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.hf import latent, softmax, windows
from kvplan.hf.fields import Fields
from kvplan.hf.softmax import Layer, Maker
from kvplan.hf.windows import FULL, Types, every, full_every, listed


@dataclass(frozen=True, slots=True)
class Family:
    """How to read the layers of some model_types."""

    types: Types
    kinds: Mapping[str, Maker]

    def layers(self, fields: Fields) -> list[Layer]:
        """What every layer runs, in order."""
        types = self.types(fields)
        for layer_type in types:
            if layer_type not in self.kinds:
                known = ", ".join(self.kinds)
                raise fields.bad("layer_types", f"names {layer_type!r}; this model_type has {known}")
        return [self.kinds[t](fields, i) for i, t in enumerate(types)]


_SOFTMAX = softmax.softmax()
PLAIN = Family(listed(every(FULL)), _SOFTMAX)
_WINDOWED = Family(listed(windows.slides_everywhere), _SOFTMAX)
_QWEN = Family(listed(windows.slides_late), _SOFTMAX)
_MLA = Family(every(FULL), {FULL: latent.mla})
_DSA = Family(every(FULL), {FULL: latent.sparse_mla})

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "internlm2", "gemma", "cohere", "phi", "stablelm", "gpt2", "gpt_neox", "opt"), PLAIN),
    **dict.fromkeys(("mistral", "mixtral", "phi3", "phimoe", "starcoder2", "ministral3"), _WINDOWED),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), _QWEN),
    **dict.fromkeys(("gemma3_text", "gemma3"), Family(listed(full_every(6)), _SOFTMAX)),
    "gemma2": Family(listed(windows.alternating), _SOFTMAX),
    "gpt_oss": Family(listed(windows.alternating), _SOFTMAX),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "minicpm3"), _MLA),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _DSA),
}
