"""What kvplan computes for every statement of the founding documents: the tables of docs/claims.md.

    python benchmarks/claims.py figures      or sharding, checklist, operating, or the id of an operating claim

A verdict follows from the figures: it changes with them. `docs/generate.py` puts the tables in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.markdown import table
from kvplan.catalog import load_gpu, load_model
from kvplan.checks import checklist
from kvplan.compare import compare_row, variant
from kvplan.model import LayerGroup, ModelSpec
from kvplan.plan import Scenario, plan
from kvplan.storage import kv_format
from kvplan.units import GIB, MIB

HOLDS, CONDITIONS, FAILS = "holds", "holds under conditions", "does not hold"
UNITS: Mapping[str, float] = {"B": 1, "MiB": MIB, "GiB": GIB, "GB": 1e9, "%": 0.01, "x": 1}
PRINT_ERROR = 0.01
"""How far a printed figure may be rounded."""
KINDS: Mapping[str, str] = {"mha": "mha", "mqa": "mqa", "gqa8": "gqa:8"}
REFERENCE_LAYERS, CONTEXT_TOKENS, LONG_TOKENS = 30, 4096, 131072
COMPARE = "`kvplan compare reference-mla --context 4k`"
COMPARE_60 = "`kvplan compare reference-mla --context 256k`: 30 layers x 256k = 60 x 128k"
COMPARE_FP8 = "`kvplan compare reference-mla --kv-dtype fp8,fp8_ds_mla`"
COMPARE_V2 = "`kvplan compare deepseek-v2 --against deepseek-67b --tp 1 --kv-dtype 6bit,bf16`"
VALIDATE = "`kvplan validate`, scenario b1-joint-latent"


@cache
def reference(kind: str, layers: int = REFERENCE_LAYERS) -> ModelSpec:
    """The documents' model, 128 heads x 128, as mha, mqa, gqa8 or mla, with so many layers."""
    base = load_model("reference-mla")
    changed = base if kind == "mla" else variant(base, KINDS[kind])
    attention = changed.layer_groups[0].attention
    return replace(changed, layer_groups=(LayerGroup(layers=f"0-{layers - 1}", attention=attention),))


def session_bytes(kind: str, layers: int = 1, tokens: int = 1, *, tp: int = 1, dtype: str = "bf16") -> int:
    """One session of the reference model on one rank."""
    return compare_row(reference(kind, layers), kv_format(dtype), tp, tokens).session_bytes_per_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure as the documents print it: `value` in `unit` is what the print means, `computed` in bytes or as a ratio.

    `value` None: the documents do not state it.
    """

    id: str
    stated: str
    value: float | None
    unit: str
    computed: float
    remark: str = ""
    check: str = COMPARE

    @property
    def verdict(self) -> str:
        """Whether the print is the computed figure, rounded."""
        if self.value is None:
            return "not stated"
        return HOLDS if abs(self.value * UNITS[self.unit] / self.computed - 1) <= PRINT_ERROR else FAILS

    @property
    def shown(self) -> str:
        """Exact bytes, with the unit of the print; or the ratio."""
        if self.unit in {"%", "x"}:
            return f"{self.computed:.2%}" if self.unit == "%" else f"{self.computed:.2f}"
        exact = f"{int(self.computed):,} B"
        return exact if self.unit == "B" else f"{exact} = {self.computed / UNITS[self.unit]:,.4g} {self.unit}"


def figures() -> Iterator[Figure]:
    """Every single figure, in the order of the documents."""
    yield from _entries()
    yield from _sessions()
    yield from _ratios()
    yield from _published()


def _entries() -> Iterator[Figure]:
    """A token in one layer."""
    for kind in ("mha", "mqa", "gqa8", "mla"):
        size = session_bytes(kind)
        stated = {"mha": 65536, "mqa": 512, "gqa8": 4096, "mla": 1152}[kind]
        yield Figure(id=f"{kind}-token-layer", stated=f"{stated:,} B", value=stated, unit="B", computed=size)
    yield Figure(
        id="mla-fp8-naive", stated="576 B in FP8", value=576, unit="B", computed=session_bytes("mla", dtype="fp8"),
        remark="every element in one byte, the rotary key too; no scales", check=COMPARE_FP8,
    )  # fmt: skip
    yield Figure(
        id="mla-fp8-ds", stated="FP8 latent with block scales, rotary key in 16 bit", value=656, unit="B",
        computed=session_bytes("mla", dtype="fp8_ds_mla"),
        remark="512 x 1 + 4 scales x 4 + 64 x 2: FlashMLA's sparse record", check=COMPARE_FP8,
    )  # fmt: skip


SESSIONS: Sequence[tuple[str, str, int, int, int, float, str, str, str]] = (
    ("mha-4k-layer", "mha", 1, CONTEXT_TOKENS, 1, 256, "MiB", "256 MB", "MiB, and one layer, not the model"),
    ("mqa-4k-layer", "mqa", 1, CONTEXT_TOKENS, 1, 2, "MiB", "2 MB", "MiB, one layer"),
    ("gqa8-4k-layer", "gqa8", 1, CONTEXT_TOKENS, 1, 16, "MiB", "16 MB", "MiB, one layer"),
    ("mla-4k-layer", "mla", 1, CONTEXT_TOKENS, 1, 4.5, "MiB", "4.5 MB", "MiB, one layer"),
    ("mha-4k-30l", "mha", 30, CONTEXT_TOKENS, 1, 7.5, "GiB", "7,680 MB (7.5 GB)", "MiB and GiB"),
    ("gqa8-4k-30l", "gqa8", 30, CONTEXT_TOKENS, 1, 480, "MiB", "480 MB", "MiB"),
    ("mla-4k-30l", "mla", 30, CONTEXT_TOKENS, 1, 135, "MiB", "135 MB (0.13 GB)", "MiB and GiB"),
    ("mha-4k-30l-b32", "mha", 30, CONTEXT_TOKENS, 32, 245, "GB", "245 GB for 32 sessions",
     "240 GiB; 245 is 7,680 MiB x 32 read as decimal megabytes"),
    ("mha-128k-layer", "mha", 1, LONG_TOKENS, 1, 8, "GiB", "8 GB at 128k", "GiB, one layer"),
    ("mha-128k-60l", "mha", 60, LONG_TOKENS, 1, 480, "GiB", "480 GB", "GiB"),
    ("gqa8-128k-60l", "gqa8", 60, LONG_TOKENS, 1, 30, "GiB", "30 GB", "GiB"),
    ("mla-128k-60l", "mla", 60, LONG_TOKENS, 1, 8.5, "GiB", "8.5 GB", "GiB, rounded up"),
)  # fmt: skip
"""id, kind, layers, tokens, sessions; value and unit of the print; the print; what to know."""


def _sessions() -> Iterator[Figure]:
    for name, kind, layers, tokens, sessions, value, unit, stated, remark in SESSIONS:
        yield Figure(
            id=name, stated=stated, value=value, unit=unit, computed=session_bytes(kind, layers, tokens) * sessions,
            remark=remark, check=COMPARE_60 if layers == 60 else COMPARE,
        )  # fmt: skip


def _ratios() -> Iterator[Figure]:
    mha, gqa8, mqa, mla = (session_bytes(kind) for kind in ("mha", "gqa8", "mqa", "mla"))
    yield Figure(id="mla-vs-mha", stated="98.24 % saved", value=98.24, unit="%", computed=1 - mla / mha)
    yield Figure(id="mla-vs-gqa8", stated="71.9 % saved", value=71.9, unit="%", computed=1 - mla / gqa8)
    yield Figure(id="gqa8-vs-mha", stated="93.75 % saved", value=93.75, unit="%", computed=1 - gqa8 / mha)
    yield Figure(id="mla-mha-factor", stated="1/57 of MHA", value=57, unit="x", computed=mha / mla)
    yield Figure(
        id="mla-gqa-groups", stated="as large as GQA with 2.25 groups", value=2.25, unit="x", computed=mla / mqa,
        remark="a group is one KV head: MQA's cache",
    )  # fmt: skip
    yield Figure(
        id="latent-2048", stated="87.5 % saved by the latent alone", value=87.5, unit="%",
        computed=1 - 512 / (2 * 2048), remark="hidden 2,048 into a latent of 512, K and V of 2,048 each",
        check=VALIDATE,
    )  # fmt: skip


def _published() -> Iterator[Figure]:
    """DeepSeek-V2 beside DeepSeek 67B and beside MHA of its own shape."""
    v2, older = load_model("deepseek-v2"), load_model("deepseek-67b")
    at = {name: compare_row(v2, kv_format(name), 1, 1, baseline=older) for name in ("6bit", "bf16")}
    yield Figure(
        id="v2-vs-67b", stated="93.3 % saved against MHA", value=93.3, unit="%",
        computed=at["6bit"].saving_vs_mha or 0.0, check=COMPARE_V2,
        remark=f"against MHA of its shape; {at['6bit'].saving_vs_baseline:.2%} is V2 in 6 bit an element against "
        "DeepSeek 67B (GQA-8) in 16 bit, as published with V2",
    )  # fmt: skip
    yield Figure(
        id="v2-vs-67b-16bit", stated="nothing", value=None, unit="%", check=COMPARE_V2,
        computed=at["bf16"].saving_vs_baseline or 0.0, remark="both in 16 bit",
    )  # fmt: skip


def figures_table() -> str:
    """All figures, by the command that checks them."""
    by_check: dict[str, list[Figure]] = {}
    for figure in figures():
        by_check.setdefault(figure.check, []).append(figure)
    header = ("id", "stated", "kvplan", "verdict", "to know")
    parts = (
        f"{check}:\n\n{table(header, ((f'`{f.id}`', f.stated, f.shown, f.verdict, f.remark) for f in found))}"
        for check, found in by_check.items()
    )
    return "\n\n".join(parts)


STATED_ELEMENTS = {1: (2048, 576), 2: (1024, 576), 4: (512, 576), 8: (256, 576), 16: (256, 576)}
"""TP -> elements of a token and layer on one rank, GQA-8 and MLA, as the documents state them."""


def elements(kind: str, tp: int) -> int:
    """Elements of a token and layer on one rank."""
    return session_bytes(kind, tp=tp) // 2


def sharding_table() -> str:
    """Elements on one rank as tensor parallelism grows."""
    rows = []
    for tp, stated in STATED_ELEMENTS.items():
        found = (elements("gqa8", tp), elements("mla", tp))
        smaller = "GQA-8" if found[0] < found[1] else "MLA"
        rows.append((tp, *stated, *found, smaller, HOLDS if found == stated else FAILS))
    header = ("TP", "stated GQA-8", "stated MLA", "kvplan GQA-8", "kvplan MLA", "smaller", "verdict")
    return table(header, rows)


RULES: Mapping[str, tuple[str, str, str]] = {
    "mla-kernel": ("an MLA kernel exists, or memory and speed are lost", HOLDS, "see `naive-fallback`"),
    "block-size": (
        "page size: waste, alignment, what the kernel accepts", CONDITIONS,
        "the page follows from the kernel: FlashMLA takes 64, FlashAttention-3 and Triton 16, CUTLASS 128",
    ),
    "fp8-rope": (
        "with FP8 the rotary key stays in 16 bit, and scales are counted", CONDITIONS,
        "so in `fp8_ds_mla` (656 B); plain `fp8` keeps it in 8 bit (576 B)",
    ),
    "concurrency": ("batch limits large enough for the cache", HOLDS, "see `seqs-3-5x` for how large"),
    "gemm-regime": (
        "bound by memory or by arithmetic at the planned batch", CONDITIONS,
        "the batch decides for weight GEMMs; for MLA attention the heads of a rank do",
    ),
    "yarn": ("beyond the trained length the config scales positions", HOLDS, "of the rotary elements only"),
    "tp-replication": ("tensor parallelism copies the latent", HOLDS, "see `tp-crossover`"),
}  # fmt: skip
"""Items of the serving checklist: the rule, whether it is sound, and why."""
CHECK_COMMAND = "kvplan check deepseek-r1 --gpu h200 --gpus 8 --context 8k --kv-dtype fp8"


def checklist_table() -> str:
    """Every rule, and what `kvplan check` decides for one deployment."""
    checked = Scenario(model=load_model("deepseek-r1"), gpu=load_gpu("h200"), gpus=8, context=8192, kv_dtype="fp8")
    decided = {item.id: item for item in checklist(plan(checked))}
    rows = (
        (f"`{name}`", rule, verdict, why, f"{decided[name].verdict}: {decided[name].reason}")
        for name, (rule, verdict, why) in RULES.items()
    )
    return table(("id", "rule", "verdict", "why", f"`{CHECK_COMMAND}`"), rows)


def sections() -> Mapping[str, Callable[[], str]]:
    """Everything that can be asked for, by name."""
    from benchmarks import claims_operating

    details = {claim.id: claim.figures for claim in claims_operating.CLAIMS if claim.figures}
    return {
        "figures": figures_table,
        "sharding": sharding_table,
        "checklist": checklist_table,
        "operating": claims_operating.summary,
        **details,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print the sections that are named, or all."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    known = sections()
    names = sys.argv[1:] if argv is None else argv
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"claims: no section {unknown[0]!r}; there are {', '.join(known)}")
    print("\n\n".join(known[name]() for name in names or known))


if __name__ == "__main__":
    main()
