"""Documents as commands build them."""

from __future__ import annotations

import pytest

from kvplan.table import Column, Document, Figure, Quantity, Section, Table

GIB = 2**30


@pytest.fixture
def compare() -> Document:
    """Two models at three contexts: wide, with columns that agree in every row."""
    columns = (
        Column("model", "Model"),
        Column("context_tokens", "Context", "tokens"),
        Column("kv_dtype", "KV dtype"),
        Column("tp", "TP", "count"),
        Column("bytes_per_token_per_layer", "Per token per layer", "exact_bytes"),
        Column("bytes_per_token_per_rank", "Per token per rank", "bytes"),
        Column("session_bytes_per_rank", "Session per rank", "bytes"),
        Column("session_bytes_all_ranks", "Session, all ranks", "bytes"),
        Column("saving_vs_mha", "Saving vs MHA", "percent"),
        Column("attention", "Attention"),
    )
    rows = [
        (name, tokens, "bf16", 8, entry, layers * entry, layers * entry * tokens, total * tokens, saving, kind)
        for name, kind, layers, entry, total, saving in (
            ("deepseek-v3", "mla", 61, 1152, 8 * 61 * 1152, 0.98242),
            ("llama-3.1-70b", "gqa", 80, 512, 80 * 4096, 0.875),
        )
        for tokens in (4096, 32768, 131072)
    ]
    return Document(
        command="compare",
        tables=[
            Table("KV cache of one session", columns, rows, caption="Logical bytes; see `kvplan fit`.", index_columns=2)
        ],
        payload={"command": "compare", "rows": [dict(zip([c.key for c in columns], r, strict=True)) for r in rows]},
        lead="At TP 8 a token of deepseek-v3 takes 68.62 KiB on every rank, one of llama-3.1-70b 40.00 KiB.",
        notes=["The latent is on all ranks; `--dcp 8` would share it out."],
    )


@pytest.fixture
def budget() -> Table:
    """Prose beside numbers, and cells that are unknown."""
    columns = (
        Column("label", "Line"),
        Column("bytes", "Size", "bytes"),
        Column("low_bytes", "Low", "bytes"),
        Column("high_bytes", "High", "bytes"),
        Column("origin", "Origin"),
        Column("rule", "Rule"),
    )
    rows = [
        ("GPU memory", 150121545728, None, None, "measured", "what the driver reports for an H200"),
        (
            "weights",
            84 * GIB,
            83 * GIB,
            85 * GIB,
            "exact",
            "671.03 G parameters in FP8, one fp32 scale per 128x128 block",
        ),
        ("CUDA graphs", GIB // 2, GIB // 4, GIB, "estimate", "51 capture sizes"),
    ]
    return Table("Memory of one GPU", columns, rows)


@pytest.fixture
def report(compare: Document, budget: Table) -> Document:
    """Every kind of content in sections."""
    capacity = Table(
        "Capacity",
        (Column("quantity", "Quantity"), Column("value", "Value"), Column("meaning", "Meaning")),
        [
            ("kv_tokens", Quantity(562240, "tokens"), "GPU KV cache size"),
            ("session", Quantity(9210691584, "bytes"), "whole pages"),
            ("decode step", Quantity(0.01934, "s"), None),
        ],
    )
    checklist = Table(
        "Items",
        (Column("item", "Item"), Column("verdict", "Verdict", "verdict"), Column("reason", "Reason")),
        [
            ("kernel", "pass", "FlashMLA on Hopper"),
            ("scales", "warn", "use `fp8_ds_mla`"),
            ("seqs", "fail", "256 < 1,024"),
        ],
    )
    figure = Figure("Cache against context", '<svg viewBox="0 0 9 9"><path d="M 0 0"/></svg>', "Both axes logarithmic.")
    return Document(
        command="report",
        tables=(),
        payload={"command": "report"},
        title="Plan of deepseek-v3",
        lead=compare.lead,
        notes=compare.notes,
        sections=[
            Section("Compare", ["Bytes are logical."], compare.tables, [figure]),
            Section("Budget", tables=[budget]),
            Section("Capacity", tables=[capacity]),
            Section("Checklist", tables=[checklist]),
            Section(
                "Sources",
                ["Section 4.2 of https://arxiv.org/abs/2412.19437."],
                code=["kvplan report deepseek-v3 \\\n  --tp 8"],
            ),
        ],
    )
