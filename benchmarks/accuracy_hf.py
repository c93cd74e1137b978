"""Import against ground truth: every config of the reference data, and what kvplan reads from it.

`section(folder)` returns the table for docs/accuracy.md; run as a script with the folder of reference data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvplan.cache import PerToken, Window
from kvplan.errors import KvplanError
from kvplan.hf import import_config
from kvplan.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Reading:
    """What one session of a config keeps: growing and window bytes in bf16, states in their own precision."""

    layers_by_kind: dict[str, int]
    kv_bytes_per_token: int
    window_bytes: int
    fixed_state_bytes: int
    index_elements_per_token: int
    cross_elements_per_encoder_token: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One file: its tier, what was expected and what was read (or the refusal)."""

    file: str
    tier: str
    expected: Reading
    found: Reading | None
    refusal: str
    notes: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether every figure is equal."""
        return self.found == self.expected


def reading(spec: ModelSpec) -> Reading:
    """The figures of a spec that the ground truth states; conv states count 2 bytes an element, other states 4."""
    tensors = [(count, a.kind, t) for count, a in spec.mixers() for t in a.tensors()]
    own = [(count, t) for count, kind, t in tensors if kind != "cross"]
    kv = [(count, t) for count, t in own if t.role != "index_k"]
    grows = sum(n * t.elements_per_slot * 2 * t.law.slots_per_token() for n, t in kv if isinstance(t.law, PerToken))
    states = [(n, t) for n, t in kv if not isinstance(t.law, PerToken | Window)]
    return Reading(
        layers_by_kind=spec.layers_by_kind(),
        kv_bytes_per_token=int(grows),
        window_bytes=sum(n * t.elements_per_slot * 2 * t.law.tokens for n, t in kv if isinstance(t.law, Window)),
        fixed_state_bytes=sum(
            n * t.elements_per_slot * int(t.slots(1)) * (2 if t.role == "conv_state" else 4) for n, t in states
        ),
        index_elements_per_token=int(
            sum(n * t.elements_per_slot * t.law.slots_per_token() for n, t in own if t.role == "index_k")
        ),
        cross_elements_per_encoder_token=sum(n * t.elements_per_slot for n, kind, t in tensors if kind == "cross"),
    )


def expected(entry: dict[str, Any]) -> Reading:
    """The same figures from an entry of the ground truth."""
    return Reading(
        layers_by_kind=entry["layers_by_kind"],
        kv_bytes_per_token=int(entry["kv_bytes_per_token_bf16"]),
        window_bytes=entry.get("window_capped_bytes_bf16_per_sequence_max", 0),
        fixed_state_bytes=entry.get("fixed_state_bytes_per_sequence", 0),
        index_elements_per_token=int(entry.get("indexer_elements_per_token_growing_total", 0)),
        cross_elements_per_encoder_token=entry.get("cross_attention_elements_per_encoder_token", 0),
    )


def comparisons(folder: Path) -> Iterator[Comparison]:
    """Every file of hf_configs/TRUTH.yaml under the folder of reference data."""
    configs = folder / "hf_configs"
    entries = yaml.load((configs / "TRUTH.yaml").read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for entry in entries:
        found: Reading | None = None
        refusal, notes = "", tuple[str, ...]()
        try:
            spec = import_config(configs / entry["file"])
            found, notes = reading(spec), spec.notes
        except KvplanError as error:
            refusal = str(error).removeprefix(f"{configs}/")
        yield Comparison(entry["file"], entry["tier"], expected(entry), found, refusal, notes)


def _verdict(c: Comparison) -> str:
    if c.agrees:
        return "equal"
    return f"refused: {c.refusal}" if c.found is None else "; ".join(c.notes) or "differs"


def section(folder: Path) -> str:
    """Markdown: how many files agree by tier, then one row for each file."""
    rows = list(comparisons(folder))
    tiers = sorted({c.tier for c in rows})
    counts = [
        f"| {t} | {sum(c.tier == t for c in rows)} | {sum(c.agrees for c in rows if c.tier == t)} |" for t in tiers
    ]
    lines = [
        f"| `{c.file}` | {c.tier} | {', '.join(f'{n} {k}' for k, n in c.expected.layers_by_kind.items())} "
        f"| {c.expected.kv_bytes_per_token:,} | {c.expected.window_bytes:,} | {c.expected.fixed_state_bytes:,} "
        f"| {_verdict(c)} |"
        for c in rows
    ]
    return "\n".join(
        [
            "## Import of Hugging Face configs",
            "",
            "Tier A: original files. B: copied from a public source. C: reconstructed. X: altered by a packager.",
            "Compared: layers by kind, growing bytes per token and filled windows in bf16, fixed states, index keys,",
            "cross attention. Bytes are exact, for one session on one rank.",
            "",
            "| tier | files | equal |",
            "|---|---:|---:|",
            *counts,
            "",
            "| config | tier | layers | B/token | window B | state B | kvplan |",
            "|---|---|---|---:|---:|---:|---|",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    print(section(Path(sys.argv[1])))
