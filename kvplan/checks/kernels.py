"""Whether the kernels that the plan counts on exist, and what they do to pages and scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.checks._item import Item, capability, latent_layers, version
from kvplan.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from kvplan.plan import Plan

TRANSACTION_BYTES = 128
"""A global memory transaction of NVIDIA GPUs."""


def fallback_cost(mla: MultiHeadLatentAttention, tokens: int) -> tuple[float, float]:
    """(times the bytes, times the FLOPs) of attention that restores K and V, per step at a context of `tokens`.

    Stored restored keys and values: heads x (nope + rope + v) against latent + rope. Restoring them every step: two
    FLOPs per weight of W_UK and W_UV for each cached token, against the absorbed core (docs/explanation).
    """
    heads, latent = mla.num_attention_heads, mla.kv_lora_rank
    wide = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim)
    restore = 2 * latent * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    absorbed = 2 * heads * (2 * latent + mla.qk_rope_head_dim)
    projections = 2 * latent * heads * (mla.qk_nope_head_dim + mla.v_head_dim) / tokens
    return wide / (latent + mla.qk_rope_head_dim), restore / (absorbed + projections)


def mla_kernel(p: Plan) -> Item | None:
    """An MLA decode kernel exists for this GPU generation, engine version and KV dtype."""
    found = latent_layers(p)
    if not found:
        return None
    missing, slow = _kernel_gap(p)
    title = "MLA decode kernel"
    if missing:
        more_bytes, more_flops = fallback_cost(found[1], p.deployment.max_model_len)
        seconds = f", a decode step of {format_seconds(p.step.seconds)} no longer holds" if p.step else ""
        reason = (
            f"{missing}; restored K and V cost {more_bytes:.0f} times the bytes if stored and {more_flops:.0f} times "
            f"the FLOPs if restored every step{seconds}"
        )
        return Item("mla-kernel", title, "fail", reason, "choose an engine version and GPU with an MLA kernel")
    if slow:
        return Item("mla-kernel", title, "warn", slow, "expect attention to bind earlier than the roofline says")
    return Item("mla-kernel", title, "pass", f"{p.engine.name} decodes the latent directly on {p.deployment.gpu.name}")


def _kernel_gap(p: Plan) -> tuple[str | None, str | None]:
    """(why there is no kernel, why the one there is slow)."""
    cap, name = capability(p), p.engine.name
    if name == "transformers":
        return "transformers restores K and V for every step", None
    if name == "llama.cpp":
        return None, None
    if name == "vllm" and version(p) < (0, 7):
        return f"vLLM {version(p)[0]}.{version(p)[1]} caches restored heads (MLA since 0.7)", None
    if cap is not None and cap < (8, 0):
        return f"compute capability {cap[0]}.{cap[1]} has no MLA kernel in {name} (8.0 and later)", None
    if cap is not None and cap not in {(9, 0), (10, 0), (10, 3)}:
        return None, (
            f"compute capability {cap[0]}.{cap[1]} has only the Triton kernel: 48 % of bandwidth at 16 heads and 10 % "
            "of the arithmetic peak at 128 heads were measured on an A100"
        )
    return None, None


def block_size(p: Plan) -> Item | None:
    """Page size against the small MLA entry: waste in the last page, alignment, what the kernel accepts."""
    found = latent_layers(p)
    if not found:
        return None
    size, tokens = p.capacity.block_size, p.deployment.max_model_len
    entry = _entry_bytes(p, found[1])
    worst = (size - 1) / (tokens + size - 1)
    aligned = entry * size % TRANSACTION_BYTES == 0
    reason = (
        f"pages of {size} tokens x {entry} B waste at most {worst:.2%} of a session in the last page; a page is "
        f"{'a multiple of' if aligned else 'not a multiple of'} {TRANSACTION_BYTES} B"
    )
    title = "page size against the latent"
    if not aligned:
        return Item("block-size", title, "warn", reason, f"use pages of {_aligned_block(entry)} tokens")
    if worst > 0.01:
        return Item("block-size", title, "warn", reason, "use smaller pages if the kernel accepts them")
    return Item("block-size", title, "pass", reason)


def _entry_bytes(p: Plan, mla: MultiHeadLatentAttention) -> int:
    """Bytes of one token's latent and rotary key as this engine stores them."""
    return sum(t.bytes_per_slot(p.layout.kv_format) for t in mla.tensors() if t.role != "index_k")


def _aligned_block(entry: int) -> int:
    """The least power of two of tokens whose page is a multiple of a transaction."""
    size = 1
    while entry * size % TRANSACTION_BYTES:
        size *= 2
    return size


def fp8_rope(p: Plan) -> Item | None:
    """FP8 with the rotary part in 16 bit or not, scales counted."""
    found = latent_layers(p)
    if not found or p.layout.kv_format.default.bits > 8:
        return None
    entry, rope = _entry_bytes(p, found[1]), p.layout.kv_format.of("rope")
    title = "FP8 and the rotary key"
    if rope.bits == 16:
        return Item(
            "fp8-rope", title, "pass", f"{entry} B a token: latent in 8 bit with its scales, rotary key in 16 bit"
        )
    return Item(
        "fp8-rope", title, "warn",
        f"{entry} B a token: the rotary key is in {rope.bits} bit too, with one scale for the tensor",
        "check quality on long contexts, or use fp8_ds_mla (656 B) where the engine has it",
    )  # fmt: skip


def fp8_on_hybrids(p: Plan) -> Item | None:
    """FP8 KV gains little where states or windows hold most of the bytes."""
    if p.layout.kv_format.default.bits != 8 or p.deployment.spec.attention_family != "hybrid":
        return None
    share = p.fixed_bytes_per_session_per_rank / max(1, p.session_bytes_logical)
    gain = 2 - share
    return Item(
        "fp8-hybrid", "FP8 on a hybrid", "warn" if share > 0.1 else "pass",
        f"{share:.0%} of a session ({format_bytes(p.fixed_bytes_per_session_per_rank)}) does not shrink with the "
        f"KV dtype: at most {gain:.2f} times the sessions",
        "weigh the loss of precision against that gain" if share > 0.1 else "",
    )  # fmt: skip


CHECKS = (mla_kernel, block_size, fp8_rope, fp8_on_hybrids)
