"""What a rule of the checklist returns, and the questions that several rules ask of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvplan.attention.mla import MultiHeadLatentAttention

if TYPE_CHECKING:
    from kvplan.plan import Plan

Verdict = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Item:
    """One decided item: `reason` states the figures, `change` what to do where it does not pass."""

    id: str
    title: str
    verdict: Verdict
    reason: str
    change: str = ""


def latent_layers(p: Plan) -> tuple[int, MultiHeadLatentAttention] | None:
    """How many MLA layers the model has, and one of them; None where it has none."""
    found = [(n, a) for n, a in p.deployment.spec.mixers() if isinstance(a, MultiHeadLatentAttention)]
    return (sum(n for n, _ in found), found[0][1]) if found else None


def version(p: Plan) -> tuple[int, int]:
    """(major, minor) of the engine; (0, 0) where its version is no such pair."""
    major, _, rest = (p.deployment.version or p.engine.default_version).partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def capability(p: Plan) -> tuple[int, int] | None:
    """CUDA compute capability of the GPU; None for other vendors."""
    return p.deployment.gpu.compute_capability
