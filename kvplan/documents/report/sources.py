"""Where a report's figures are from, by what rules they were found, and the command that finds them again."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan import __version__
from kvplan.documents.report.study import Study
from kvplan.documents.show import gpu_tables
from kvplan.model import ModelSpec
from kvplan.plan import Plan
from kvplan.roofline import BEST, CENTRE, WORST
from kvplan.table import Column, Section, Table


def sources(specs: Sequence[ModelSpec], studies: Sequence[Study]) -> Section:
    """Models, GPU and rules."""
    columns = (Column("model", "Model"), Column("source", "Source"))
    models = Table("Models", columns, [(s.name, s.source) for s in specs])
    if not studies:
        return Section("Sources", tables=[models, _rules([_CACHE])])
    p = studies[0].plan
    return Section("Sources", tables=[models, *gpu_tables(p.deployment.gpu), _rules([_CACHE, *_plan_rules(p)])])


_CACHE = (
    "cache",
    "heads x elements x bytes of an element x slots, summed over layers; a rank holds its share of the heads. "
    "`kvplan compare MODEL --explain` prints every term.",
)


def _plan_rules(p: Plan) -> list[tuple[str, str]]:
    version = p.deployment.version or p.engine.default_version
    return [
        ("KV pool", "what is requested (each budget says how) less its lines; ranges add as independent errors do"),
        ("blocks, tokens, sessions", f"as {p.engine.name} {version} computes them from the pool"),
        (
            "decode step",
            "the sum over kernels of the longest of: a floor, bytes over bandwidth, FLOPs over the arithmetic rate. "
            f"Kernels reach {CENTRE.bandwidth:.0%} ({WORST.bandwidth:.0%} to {BEST.bandwidth:.0%}) of the datasheet's "
            f"bandwidth and {CENTRE.rate:.0%} ({WORST.rate:.0%} to {BEST.rate:.0%}) of its dense 16-bit rate",
        ),
        ("sessions, speed", "all sessions at the full context; a mix of shorter ones holds more and runs faster"),
    ]


def _rules(rows: Sequence[tuple[str, str]]) -> Table:
    return Table("Rules", (Column("figure", "Figure"), Column("rule", "Rule")), rows)


def reproduction(command: str) -> Section:
    """What to paste."""
    text = (
        f"kvplan {__version__} finds this report again with the command below; `-o FILE` writes it, and the file's "
        "suffix (.md, .html, .json) chooses the format."
    )
    return Section("Reproduce", [text], code=[command])
