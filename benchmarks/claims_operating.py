"""The founding documents' statements that are not single figures: which there are, and the summary of all verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import claims_bytes, claims_serving
from benchmarks.markdown import table


@dataclass(frozen=True, slots=True)
class Claim:
    """`decide` returns the verdict and what was computed, in one line; `figures` gives the table behind it."""

    id: str
    says: str
    check: str
    decide: Callable[[], tuple[str, str]]
    figures: Callable[[], str] | None = None


def summary() -> str:
    """One line for each claim."""
    rows = []
    for claim in CLAIMS:
        verdict, computed = claim.decide()
        name = f"[`{claim.id}`](#{claim.id})" if claim.figures else f"`{claim.id}`"
        rows.append((name, claim.says, verdict, computed, claim.check))
    return table(("id", "says", "verdict", "computed", "check"), rows)


CLAIMS = (
    Claim(
        "mqa-floor",
        "sharing heads cannot go below 2 x head_dim a layer",
        "`kvplan compare reference-mla --against mqa`",
        claims_bytes.mqa_floor,
    ),
    Claim(
        "batch-10-20x",
        "the same memory holds 10 to 20 times the MHA batch",
        "`python benchmarks/claims.py batch-10-20x`",
        claims_serving.batch,
        claims_serving.batch_table,
    ),
    Claim(
        "throughput-5-6x",
        "native MLA gives 5 to 6 times the throughput (V2: 5.76 times its 67B predecessor)",
        "`python benchmarks/claims.py throughput-5-6x`",
        claims_serving.throughput,
        claims_serving.throughput_table,
    ),
    Claim(
        "a100-count",
        "one MHA request of 128k in 60 layers needs six A100-80GB, MLA one",
        "`kvplan compare reference-mla --context 256k`, `kvplan show a100-80gb`",
        claims_bytes.a100_count,
        claims_bytes.a100_table,
    ),
    Claim(
        "tp-crossover",
        "at TP 4 GQA-8 keeps 512 elements a GPU and MLA 576; more GPUs make it worse",
        "`kvplan compare reference-mla --against gqa:8 --tp 4`",
        claims_bytes.tp_crossover,
    ),
    Claim(
        "gemv-to-gemm",
        "larger batches make decode compute-bound, above 90 % utilisation",
        "`kvplan check deepseek-v3 --gpu h200 --gpus 8`",
        claims_serving.regime,
        claims_serving.regime_table,
    ),
    Claim(
        "naive-fallback",
        "an engine without an MLA kernel restores K and V and loses the speed",
        "`kvplan validate`: absorbed beside restored",
        claims_serving.fallback,
    ),
    Claim(
        "page-waste",
        "large pages fragment the small MLA entry",
        "`kvplan check`, item block-size",
        claims_bytes.page_waste,
        claims_bytes.waste_table,
    ),
    Claim(
        "alignment",
        "1,152-byte entries against transactions of 128 bytes",
        "`kvplan check`, item block-size",
        claims_bytes.alignment,
        claims_bytes.alignment_table,
    ),
    Claim(
        "fp8-half",
        "FP8 halves the cache again",
        "`kvplan compare deepseek-v3 --kv-dtype bf16,fp8,fp8_ds_mla`",
        claims_bytes.fp8_half,
        claims_bytes.fp8_table,
    ),
    Claim(
        "seqs-3-5x",
        "raise max_num_seqs and max_num_batched_tokens 3 to 5 times",
        "`kvplan check`, item concurrency",
        claims_serving.limits,
        claims_serving.limits_table,
    ),
    Claim(
        "v4-sequence-axis",
        "V4 replaced MLA by compression along the sequence",
        "`kvplan compare deepseek-v3.2 deepseek-v4-pro --context 1M`",
        claims_bytes.v4_axis,
        claims_bytes.v4_table,
    ),
)
