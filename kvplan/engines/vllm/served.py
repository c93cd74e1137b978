"""Which attention kinds a release serves at all, and which architectures a later one dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.vllm.versions import release_of

if TYPE_CHECKING:
    from kvplan.attention import Attention
    from kvplan.engines.vllm.versions import Rules
    from kvplan.model import ModelSpec

FIRST: Mapping[str, tuple[str, str]] = {
    "mamba2": ("0.7", "0.6.6.post1"),
    "lightning": ("0.8", "0.7.3"),
    "attention sinks": ("0.10", "0.9.2"),
    "gated_deltanet": ("0.10", "0.9.2"),
    "short_conv": ("0.10", "0.9.2"),
    "kda": ("0.11", "0.10.2"),
    "sparse mla": ("0.11", "0.10.2"),
    "values narrower than keys": ("0.14", "0.13.0"),
    "compressed": ("0.20", "0.19.1"),
}
"""Kind -> (first release that has a model of it, newest release read that has none)."""

LAST: Mapping[str, str] = {
    "Phi3SmallForCausalLM": "0.9", "MllamaForConditionalGeneration": "0.10", "MotifForCausalLM": "0.10",
    "Phi4FlashForCausalLM": "0.10", "BartForConditionalGeneration": "0.10", "Phi4MultimodalForCausalLM": "0.12",
    "JAISLMHeadModel": "0.22", "BaiChuanForCausalLM": "0.23", "BaichuanForCausalLM": "0.23", "BambaForCausalLM": "0.23",
    "Dots1ForCausalLM": "0.23", "InternLMForCausalLM": "0.23", "InternLM2VEForCausalLM": "0.23",
    "MiniMaxForCausalLM": "0.23", "MiniMaxM1ForCausalLM": "0.23", "MiniMaxText01ForCausalLM": "0.23",
    "QWenLMHeadModel": "0.23", "QwenVLForConditionalGeneration": "0.23", "XverseForCausalLM": "0.23",
    "AquilaForCausalLM": "0.24", "Grok1ForCausalLM": "0.24", "Grok1ModelForCausalLM": "0.24", "FuyuForCausalLM": "0.25",
    "PersimmonForCausalLM": "0.25", "TeleChatForCausalLM": "0.25", "OuroForCausalLM": "0.26",
    "Plamo2ForCausalLM": "0.26", "ArcticForCausalLM": "0.28", "ChameleonForConditionalGeneration": "0.28",
    "HCXVisionForCausalLM": "0.28", "MPTForCausalLM": "0.28", "MptForCausalLM": "0.28", "RWForCausalLM": "0.28",
    "StableLMEpochForCausalLM": "0.28",
}  # fmt: skip
"""Architecture -> last release that served it (the registry of 0.33 lists them)."""


WITHOUT_STAGES = frozenset({
    "AriaForConditionalGeneration", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration", "HrmTextForCausalLM",
    "Idefics3ForConditionalGeneration", "IQuestLoopCoderForCausalLM", "Mamba2ForCausalLM", "Phi4MMForCausalLM",
    "SmolVLMForConditionalGeneration", "WhisperForConditionalGeneration", "Zamba2ForCausalLM",
})  # fmt: skip
"""Architectures whose class lacks pipeline parallelism."""

WITHOUT_COPIES = frozenset({"gpt_oss"})
"""Model types whose class does not copy KV heads to more ranks than there are heads."""


def unserved(spec: ModelSpec, rules: Rules) -> Iterator[str]:
    """Kinds of attention that this release has no model of: it plans nothing for them."""
    for kind in dict.fromkeys(k for _, a in spec.mixers() for k in _kinds(a)):
        first, _ = FIRST.get(kind, ("0.6", ""))
        if rules.release < release_of(first):
            yield f"vLLM {rules.version}: serves no model with {kind}; {first} is the first that does"


def retired(spec: ModelSpec, rules: Rules) -> str | None:
    """A remark where this release no longer serves the architecture."""
    last = LAST.get(spec.architecture or "")
    if last is None or rules.release <= release_of(last):
        return None
    return f"Model architecture {spec.architecture} was supported in vLLM until v{last}, and is not supported anymore"


def _kinds(attention: Attention) -> Iterator[str]:
    yield attention.kind
    if isinstance(attention, MultiHeadLatentAttention) and attention.index_topk:
        yield "sparse mla"
    if isinstance(attention, GroupedQueryAttention) and attention.sinks:
        yield "attention sinks"
    if isinstance(attention, GroupedQueryAttention) and attention.v_head_dim not in {None, attention.head_dim}:
        yield "values narrower than keys"
