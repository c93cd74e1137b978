"""The layers that a speculating drafter adds to the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.attention.gqa import GroupedQueryAttention
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.engines.vllm.mixers import Mixer, has_cache, is_state, window_of
from kvplan.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvplan.attention import Attention
    from kvplan.engines.vllm.args import Speculation
    from kvplan.engines.vllm.versions import Rules
    from kvplan.model import LayerGroup, ModelSpec

_ONE_LAYER = ("eagle", "eagle3")
_ONE_UNSTATED = frozenset({"qwen3_next"})
"""Model types whose prediction module is one layer of full attention where the config does not state how many."""
_READS_TARGET = "gemma4"
"""Models whose multi-token prediction reads the target's cache (`Gemma4Proposer._setup_gemma4_kv_sharing`, 0.21)."""


def draft_mixers(spec: ModelSpec, speculation: Speculation | None, stage: int) -> tuple[Mixer, ...]:
    """The drafter's layers, on the last stage: an MTP module's, a draft model's, or one as the target's."""
    if speculation is None or not speculation.keeps_cache or _reads_target(spec, speculation):
        return ()
    first = spec.num_hidden_layers
    if speculation.draft is not None:
        return _mixers(speculation.draft.layer_groups, first, stage)
    if is_mtp(speculation) and spec.mtp:
        return _mixers(spec.mtp, 0, stage)
    if is_mtp(speculation) and spec.model_type not in _ONE_UNSTATED:
        raise Unsupported(
            f"Unsupported speculative method: {speculation.method!r}: {spec.name} has no multi-token prediction layers"
        )
    return (Mixer(first, stage, _like_target(spec, speculation), draft=True),)


def is_mtp(speculation: Speculation) -> bool:
    """Whether the checkpoint's own multi-token prediction drafts."""
    return speculation.method == "mtp" or speculation.method.endswith("_mtp")


def _reads_target(spec: ModelSpec, speculation: Speculation) -> bool:
    return is_mtp(speculation) and spec.model_type.startswith(_READS_TARGET)


def assumed(speculation: Speculation | None) -> str | None:
    """What was taken for granted of a drafter whose layers nobody states; None where nothing was."""
    if speculation is None or not speculation.keeps_cache or speculation.draft or is_mtp(speculation):
        return None
    return f"{speculation.method}: the drafter is taken for one layer with the target's full attention"


def retained_tokens(spec: ModelSpec, speculation: Speculation | None, rules: Rules) -> int:
    """Tokens below a window that a chain of MTP modules still reads: each looks one token further than the last."""
    if speculation is None or not is_mtp(speculation) or not rules.retains_for_mtp:
        return 0
    modules = sum(len(g.indices) for g in spec.mtp) or 1
    drafts = speculation.num_speculative_tokens
    return drafts - 1 if min(modules, drafts) > 1 else 0


def _mixers(groups: Iterable[LayerGroup], first: int, stage: int) -> tuple[Mixer, ...]:
    layers = sorted((i, g.attention) for g in groups for i in g.indices)
    return tuple(
        Mixer(first + index, stage, attention, draft=True, position=position)
        for index, attentions in layers
        for position, attention in enumerate(attentions)
        if has_cache(attention)
    )


def _like_target(spec: ModelSpec, speculation: Speculation) -> Attention:
    method = speculation.method
    kinds = [a for _, a in spec.mixers() if has_cache(a) and not is_state(a)]
    full = [a for a in kinds if isinstance(a, MultiHeadLatentAttention) or _is_full(a)]
    if not (method in _ONE_LAYER or is_mtp(speculation)) or not full:
        raise Unsupported(f"vLLM: the layers that {method!r} drafts with are unknown; give its model")
    return full[-1]


def _is_full(attention: Attention) -> bool:
    if not isinstance(attention, GroupedQueryAttention):
        return False
    return not (window_of(attention) or attention.attention_chunk_size)
