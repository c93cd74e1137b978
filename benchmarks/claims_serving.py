"""Operating claims about serving: batches, throughput, regimes, the price of a missing kernel, batch limits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from benchmarks.claims import CONDITIONS, FAILS, HOLDS, session_bytes
from benchmarks.markdown import table
from kvplan.arith import cdiv
from kvplan.attention.mla import MultiHeadLatentAttention
from kvplan.catalog import gpu_names, load_gpu, load_model
from kvplan.checks.kernels import fallback_cost
from kvplan.compare import variant
from kvplan.model import Quantization
from kvplan.parallel import Parallelism
from kvplan.plan import Plan, Scenario, plan
from kvplan.roofline import attention_work, decode_step, operations, peak_flops
from kvplan.storage import kv_format
from kvplan.units import GIB, format_tokens

BF16 = kv_format("bf16")
TPS = (1, 2, 4, 8)
POOL_BYTES = 40 * GIB
ADMITTED = 1024
"""vLLM's default max_num_seqs on GPUs of 70 GiB and more."""


def _sessions_at(kind: str, tp: int) -> int:
    """Sessions of 4k that a pool of 40 GiB a GPU holds of DeepSeek-V3's layers, as MLA or as MHA, under vLLM."""
    model = load_model("deepseek-v3")
    spec = model if kind == "mla" else variant(model, kind)
    return plan(Scenario(model=spec, gpu=load_gpu("h200"), tp=tp, context=4096, kv_pool_bytes=POOL_BYTES)).max_batch


def _batch_ratio(tp: int) -> float:
    """Bytes of an MHA session over those of an MLA session, on one rank."""
    return session_bytes("mha", tp=tp) / session_bytes("mla", tp=tp)


def batch() -> tuple[str, str]:
    """The ratio of sessions that one pool holds."""
    inside = [str(tp) for tp in TPS if 10 <= _batch_ratio(tp) <= 20]
    return CONDITIONS if inside else FAILS, (
        f"{_batch_ratio(1):.1f} times at TP 1 and with data-parallel attention, less as TP shares out MHA's heads: "
        f"{_batch_ratio(8):.1f} at TP 8. 10 to 20 is right at TP {', '.join(inside)}, and where max_num_seqs "
        f"{ADMITTED:,} binds: MHA holds {cdiv(ADMITTED, 20)} to {ADMITTED // 10} sessions then"
    )


def batch_table() -> str:
    """By TP."""
    rows = []
    for tp in TPS:
        mla, mha = _sessions_at("mla", tp), _sessions_at("mha", tp)
        rows.append((tp, f"{_batch_ratio(tp):.1f}", mla, mha, f"{mla / mha:.1f}"))
    return table(("TP", "bytes, MHA over MLA", "sessions, MLA", "sessions, MHA", "ratio"), rows)


@cache
def _v2(dp: int, kv_dtype: str) -> Plan:
    """DeepSeek-V2 with its weights in 8 bit on 8 H800, as so many replicas of attention."""
    fp8 = Quantization(quant_method="fp8", weight_format="fp8_block", block=(128, 128))
    spec = replace(load_model("deepseek-v2"), quantization=fp8)
    return plan(Scenario(model=spec, gpu=load_gpu("h800"), gpus=8, dp=dp, ep=dp, context=4096, kv_dtype=kv_dtype))


@cache
def _older() -> Plan:
    """DeepSeek 67B on the same node."""
    return plan(Scenario(model=load_model("deepseek-67b"), gpu=load_gpu("h800"), gpus=8, context=4096))


def _rate(p: Plan) -> float:
    return p.tokens_per_s or 0.0


def _rate_at(p: Plan, sessions: int) -> float:
    """Tokens/s of a plan with so many sessions over all replicas."""
    dp = p.deployment.parallel.dp
    step = decode_step(p.deployment, p.layout.kv_format, sessions // dp)
    return sessions // dp * dp / step.seconds if step else 0.0


def throughput() -> tuple[str, str]:
    """Roofline at the largest batch of 4k sessions, and at the batch of the older model."""
    newer, older = _v2(8, "fp8"), _older()
    times, model = _rate(newer) / _rate(older), _rate_at(newer, older.batch) / _rate(older)
    copied = _rate(_v2(1, "auto")) / _rate(older)
    return CONDITIONS if times >= 5 > copied else FAILS, (
        f"{times:.1f} times with data-parallel attention, 8-bit weights and an 8-bit cache: {model:.1f} from the model "
        f"at the same batch (fewer active parameters, smaller reads), {times / model:.1f} from memory, which holds "
        f"{newer.batch / older.batch:.1f} times the sessions. With tensor parallelism and a 16-bit cache {copied:.1f} "
        "times: every rank copies the latent"
    )


def throughput_table() -> str:
    """Both models on 8 H800."""
    plans = (
        ("DeepSeek 67B, TP 8, bf16", _older()),
        ("V2, 8-bit weights, TP 8, bf16 cache", _v2(1, "auto")),
        ("V2, 8-bit weights, DP 8, bf16 cache", _v2(8, "auto")),
        ("V2, 8-bit weights, DP 8, fp8 cache", _v2(8, "fp8")),
    )
    rows = (
        (
            name,
            f"{p.budget.kv_pool_bytes / GIB:.1f}",
            f"{p.batch:,}",
            f"{p.step.seconds * 1e3:.1f}" if p.step else "",
            f"{_rate(p):,.0f}",
            f"{_rate(p) / _rate(_older()):.2f}",
        )
        for name, p in plans
    )
    header = ("deployment", "pool of a GPU, GiB", "sessions of 4k", "step, ms", "tokens/s", "against 67B")
    return table(header, rows)


def _intensity(heads: int) -> float:
    """FLOPs per cache byte of MLA decode with so many query heads on a rank, at 8k tokens."""
    attention = MultiHeadLatentAttention(
        num_attention_heads=heads, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
    )
    size, flops = attention_work(attention, 8192, BF16, Parallelism())
    return flops / size


def _ridge(gpu: str) -> float:
    """FLOPs per byte above which arithmetic binds."""
    spec = load_gpu(gpu)
    return peak_flops(spec) / (spec.bytes_per_s or 1.0)


def _gemm_turn(gpu: str, *, tp: int = 1, ep: int = 1) -> int:
    """The batch of a rank at which the weight GEMMs of DeepSeek-V3 reach the ridge."""
    ops = operations(load_model("deepseek-v3"), BF16, Parallelism(tp=tp, dp=ep, ep=ep))
    gemms = [op for op in ops if op.kind == "gemm"]
    size = sum(op.count * (op.weight_bytes + op.experts[2]) for op in gemms)
    return cdiv(int(size * _ridge(gpu)), sum(op.count * op.flops for op in gemms))


def _measured_shares() -> dict[str, float]:
    """The best 16-bit matrix product that was measured, as a share of the peak, by GPU."""
    gpus = map(load_gpu, gpu_names())
    known = (g for g in gpus if g.measured_flops_per_s.bf16 and g.flops_per_s.bf16)
    return {g.name: (g.measured_flops_per_s.bf16 or 0) / (g.flops_per_s.bf16 or 1) for g in known}


def regime() -> tuple[str, str]:
    """What turns with the batch, what does not, and how far utilisation goes."""
    gpu, best = max(_measured_shares().items(), key=lambda item: item[1])
    return FAILS if best < 0.9 else CONDITIONS, (
        f"of MLA attention not: {_intensity(128):.0f} FLOP/B with 128 heads on a rank and {_intensity(16):.0f} with "
        f"16, at any batch, against a ridge of {_ridge('h200'):.0f} on H200. Of weight GEMMs yes: from batch "
        f"{_gemm_turn('h200', tp=8):,} at TP 8, {_gemm_turn('h200', ep=8):,} a rank at DP 8 with EP 8 (DeepSeek-V3). "
        f"Above 90 % not: the best 16-bit product measured on any GPU here is {best:.0%} of the peak (`{gpu}`)"
    )


def regime_table() -> str:
    """By GPU: heads at which attention turns, batches at which GEMMs do."""
    per_head = _intensity(16) / 16
    rows = (
        (
            f"`{gpu}`",
            f"{_ridge(gpu):.0f}",
            f"{_ridge(gpu) / per_head:.0f}",
            f"{_gemm_turn(gpu, tp=8):,}",
            f"{_gemm_turn(gpu, ep=8):,}",
        )
        for gpu in ("a100-80gb", "h20", "h100", "h200", "b200", "mi300x")
    )
    header = (
        "GPU",
        "ridge, FLOP/B",
        "attention turns at heads a rank",
        "GEMMs turn at batch, TP 8",
        "a rank, DP 8 EP 8",
    )
    return table(header, rows)


def _fallback_cost(tokens: int) -> tuple[float, float]:
    mla = next(a for _, a in load_model("deepseek-v3").mixers() if isinstance(a, MultiHeadLatentAttention))
    return fallback_cost(mla, tokens)


def fallback() -> tuple[str, str]:
    """Restored K and V, stored or made anew."""
    (stored, short), (_, long) = _fallback_cost(1024), _fallback_cost(131072)
    return HOLDS if min(stored, short, long) > 10 else FAILS, (
        f"DeepSeek-V3: {stored:.0f} times the bytes if K and V are stored, {short:.0f} times (1k tokens) to {long:.0f} "
        "times (128k) the FLOPs if they are restored every step"
    )


LIMITS = (
    ("deepseek-r1", "h200", 8, 8192),
    ("deepseek-v2-lite", "h200", 1, 8192),
    ("deepseek-v2-lite", "h200", 1, 1024),
    ("deepseek-v2-lite", "a100-80gb", 1, 1024),
)
"""Model, GPU, TP, context."""


def _held(model: str, gpu: str, tp: int, context: int) -> tuple[int, int]:
    """(sessions that the pool holds, sessions that vLLM admits by default)."""
    p = plan(Scenario(model=load_model(model), gpu=load_gpu(gpu), tp=tp, context=context))
    return p.capacity.num_blocks // int(p.layout.blocks_per_session(context)), p.layout.max_num_seqs


def limits() -> tuple[str, str]:
    """The factor that the pool asks for."""
    factors = [held / admitted for held, admitted in (_held(*case) for case in LIMITS)]
    return HOLDS if all(3 <= factor <= 5 for factor in factors) else FAILS, (
        f"the pool decides: {min(factors):.2f} to {max(factors):.1f} times vLLM's default over the deployments below. "
        "`kvplan check` prints the value that uses the pool"
    )


def limits_table() -> str:
    """Pools against limits."""
    rows = []
    for model, gpu, tp, context in LIMITS:
        held, admitted = _held(model, gpu, tp, context)
        name = f"`{model}`, {tp} x `{gpu}`"
        rows.append((name, format_tokens(context), f"{held:,}", f"{admitted:,}", f"{held / admitted:.2f}"))
    return table(("deployment", "context", "pool holds", "max_num_seqs by default", "factor"), rows)
