"""Operating claims about bytes: floors, cards, copies, pages, alignment, FP8, compression along the sequence."""

from __future__ import annotations

from itertools import count

from benchmarks.claims import CONDITIONS, FAILS, HOLDS, elements, session_bytes
from benchmarks.markdown import table
from kvplan.arith import cdiv
from kvplan.catalog import load_gpu, load_model
from kvplan.compare import compare_row
from kvplan.storage import Storage, kv_format
from kvplan.units import GIB, MIB, format_tokens

ENTRIES = (("bf16", 1152), ("fp8", 576), ("fp8_ds_mla", 656))
"""Bytes of one MLA entry."""
TRANSACTION_BYTES = 128


def mqa_floor() -> tuple[str, str]:
    """Sharing heads, against what else makes a cache small."""
    floor, mla, v4 = session_bytes("mqa"), session_bytes("mla"), load_model("deepseek-v4-pro")
    per_token = compare_row(v4, kv_format("bf16"), 1, MILLION).bytes_per_token_per_rank
    return HOLDS if floor == 2 * 128 * 2 < mla else FAILS, (
        f"{floor} B a token and layer at 16 bit, {mla / floor:.2f} times less than MLA. Narrower elements, layers that "
        f"share, and compression go below it (DeepSeek-V4-Pro: {per_token / v4.num_hidden_layers:.0f} B on average)"
    )


def _request(kind: str) -> int:
    """One session of 128k in 60 layers."""
    return session_bytes(kind, 60, 131072)


def _cards(size_bytes: int, share: float = 1.0) -> int:
    return cdiv(size_bytes, int(share * load_gpu("a100-80gb").memory_bytes))


def a100_count() -> tuple[str, str]:
    """Bytes over what the driver reports."""
    mha, mla, card = _request("mha"), _request("mla"), load_gpu("a100-80gb").memory_bytes
    nominal = cdiv(mha, 80 * GIB)
    return HOLDS if _cards(mha) == 6 else CONDITIONS if nominal == 6 else FAILS, (
        f"{mha / GIB:.0f} GiB over the {card / GIB:.2f} GiB that the driver reports are {_cards(mha)} cards with "
        f"nothing else on them, {nominal} if a card held 80 GiB. MLA's {mla / GIB:.2f} GiB fit on {_cards(mla)}"
    )


def a100_table() -> str:
    """By kind, and by how much of a card the cache gets."""
    rows = (
        (name, f"{_request(kind) / GIB:,.2f}", _cards(_request(kind)), _cards(_request(kind), 0.92))
        for kind, name in (("mha", "MHA"), ("gqa8", "GQA-8"), ("mla", "MLA"))
    )
    return table(("kind", "GiB", "cards, all memory", "cards at utilization 0.92"), rows)


def tp_crossover() -> tuple[str, str]:
    """Elements at TP 4, and beyond."""
    found = {tp: (elements("gqa8", tp), elements("mla", tp)) for tp in (4, 8, 16)}
    (gqa4, mla), (gqa8, _), (gqa16, _) = found.values()
    return HOLDS if (gqa4, mla) == (512, 576) and gqa8 < gqa4 else FAILS, (
        f"TP 4: {gqa4} against {mla} elements; TP 8: {gqa8} against {mla}, and no further: at TP 16 GQA-8 has no more "
        f"heads to share out ({gqa16}). Data-parallel attention or DCP ends the copies"
    )


def _waste(tokens: int, block: int) -> tuple[float, float]:
    """(mean, worst) share of a session's pages that its last page leaves empty, around a length."""
    return (block - 1) / 2 / tokens, (block - 1) / (tokens + block - 1)


def _small_waste_tokens(block: int, share: float = 0.01) -> int:
    """The least length at which the last page wastes less than `share` at worst."""
    return next(n for n in count(1) if _waste(n, block)[1] < share)


def page_waste() -> tuple[str, str]:
    """The last page of a session."""
    (mean, worst), layers = _waste(4096, 64), load_model("deepseek-v3").num_hidden_layers
    return CONDITIONS if worst > 0.01 else FAILS, (
        f"a page wastes tokens, so the share is the same for MHA: at block 64 and 4k tokens {mean:.2%} on average, "
        f"{worst:.2%} at worst ({63 * 1152 * layers / MIB:.1f} MiB of DeepSeek-V3); below 1 % at worst from "
        f"{_small_waste_tokens(64):,} tokens on. It counts for hybrids, whose blocks grow to the size of a state"
    )


def waste_table() -> str:
    """By length and block size."""
    blocks = (16, 64, 128, 576)
    rows = (
        (format_tokens(tokens), *(f"{_waste(tokens, b)[0]:.2%}, {_waste(tokens, b)[1]:.2%}" for b in blocks))
        for tokens in (1024, 4096, 32768, 131072)
    )
    return table(("tokens", *(f"block {b}: mean, worst" for b in blocks)), rows)


def alignment() -> tuple[str, str]:
    """Entries and pages against transactions."""
    off = [str(size) for _, size in ENTRIES if size % TRANSACTION_BYTES]
    pages = all(size * 16 % TRANSACTION_BYTES == 0 for _, size in ENTRIES)
    return CONDITIONS if off and pages else HOLDS, (
        f"1,152 = {1152 // TRANSACTION_BYTES} x 128 is aligned; the 8-bit entries of {' and '.join(off)} bytes are "
        "not, but every page of a multiple of 16 tokens is"
    )


def alignment_table() -> str:
    """Entries, and the least page that is a multiple of a transaction."""
    rows = []
    for name, size in ENTRIES:
        least = next(n for n in count(1) if n * size % TRANSACTION_BYTES == 0)
        rows.append((f"`{name}`", f"{size:,}", f"{size / TRANSACTION_BYTES:g}", least, f"{64 * size:,}"))
    return table(("KV dtype", "bytes", "transactions of 128 B", "least page, tokens", "page of 64, B"), rows)


MEASURED_US = ((16, 285.9, 215.2), (128, 485.7, 438.5))
"""Heads; microseconds of one layer in bf16 and in fp8 (NVIDIA aiconfigurator, h200_sxm, TensorRT-LLM 1.3.0rc20)."""


def fp8_half() -> tuple[str, str]:
    """Bytes with and without scales; time."""
    plain, scaled = (session_bytes("mla", dtype=dtype) / session_bytes("mla") for dtype in ("fp8", "fp8_ds_mla"))
    gains = " and ".join(f"{wide / narrow:.2f} times with {heads} heads" for heads, wide, narrow in MEASURED_US)
    return CONDITIONS if plain == 0.5 < scaled else FAILS, (
        f"{plain:.3f} in plain fp8, {scaled:.3f} with scales and a 16-bit rotary key. Time does not halve: on H200 "
        f"TensorRT-LLM's kernel gained {gains} (batch 128, 8k tokens)"
    )


def fp8_table() -> str:
    """Models, with what does not shrink."""
    rows = []
    for model, dtype in (
        ("deepseek-v3", "fp8"),
        ("deepseek-v3", "fp8_ds_mla"),
        ("deepseek-v3.2", "fp8_ds_mla"),
        ("qwen3-next-80b-a3b", "fp8"),
    ):
        wide, narrow = _session(model, "bf16", 32768), _session(model, dtype, 32768)
        rows.append((f"`{model}`", f"`{dtype}`", f"{wide:,}", f"{narrow:,}", f"{narrow / wide:.3f}"))
    return table(("model", "KV dtype", "session of 32k in bf16, B", "B", "ratio"), rows)


MILLION = 2**20
INDEX_FP4 = Storage("fp4+fp32/128", 4, scale_bits=32, group=128)
"""DeepSeek-V4's index keys as SGLang stores them in 4 bit: 68 B each."""


def _session(model: str, dtype: str, tokens: int, *, index_fp4: bool = False) -> int:
    """Logical bytes of one session."""
    fmt = kv_format(dtype)
    fmt = fmt.with_roles(index_k=INDEX_FP4) if index_fp4 else fmt
    return compare_row(load_model(model), fmt, 1, tokens).session_bytes_per_rank


def v4_axis() -> tuple[str, str]:
    """V4-Pro beside V3.2 at 1M tokens."""
    ratio = _session("deepseek-v4-pro", "bf16", MILLION) / _session("deepseek-v3.2", "bf16", MILLION)
    narrow = _session("deepseek-v4-pro", "fp8_ds_mla", MILLION, index_fp4=True)
    served = narrow / _session("deepseek-v3.2", "fp8_ds_mla", MILLION)
    return HOLDS if 0.09 <= served <= 0.12 else FAILS, (
        f"at 1M tokens V4-Pro keeps {ratio:.1%} of V3.2's cache in bf16, and {served:.1%} of it as served (fp8 "
        "records, V4's index keys in 4 bit). About 10 % is published"
    )


def v4_table() -> str:
    """Two generations in their formats."""
    cases = [("deepseek-v3.2", "bf16", False), ("deepseek-v3.2", "fp8_ds_mla", False)]
    for model in ("deepseek-v4-pro", "deepseek-v4-flash"):
        cases += [(model, "bf16", False), (model, "fp8_ds_mla", False), (model, "fp8_ds_mla", True)]
    base = _session("deepseek-v3.2", "fp8_ds_mla", MILLION)
    rows = []
    for model, dtype, index_fp4 in cases:
        size = _session(model, dtype, MILLION, index_fp4=index_fp4)
        keys = "4 bit" if index_fp4 else "8 bit"
        rows.append((f"`{model}`", f"`{dtype}`", keys, f"{size / GIB:.2f}", f"{size / base:.1%}"))
    return table(("model", "records", "index keys", "GiB at 1M", "of V3.2 in fp8_ds_mla"), rows)
