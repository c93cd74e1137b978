"""kvplan.formats.table: whole screens."""

from __future__ import annotations

import re

import pytest

from kvplan.formats import Screen
from kvplan.formats.table import render
from kvplan.table import Column, Document, Section, Table

NARROW = """\
At TP 8 a token of deepseek-v3 takes 68.62 KiB on every rank, one of
llama-3.1-70b 40.00 KiB.

KV cache of one session
In every row: KV dtype bf16, TP 8.
                        Per token  Per token   Session
Model          Context  per layer   per rank  per rank
                tokens          B        KiB       GiB
──────────────────────────────────────────────────────
deepseek-v3         4k      1,152      68.62     0.268
deepseek-v3        32k      1,152      68.62     2.145
deepseek-v3       128k      1,152      68.62     8.578
──────────────────────────────────────────────────────
llama-3.1-70b       4k        512      40.00     0.156
llama-3.1-70b      32k        512      40.00     1.250
llama-3.1-70b     128k        512      40.00     5.000

                         Session,  Saving
Model          Context  all ranks  vs MHA  Attention
                tokens        GiB
────────────────────────────────────────────────────
deepseek-v3         4k      2.145  98.24%  mla
deepseek-v3        32k     17.156  98.24%  mla
deepseek-v3       128k     68.625  98.24%  mla
────────────────────────────────────────────────────
llama-3.1-70b       4k      1.250  87.50%  gqa
llama-3.1-70b      32k     10.000  87.50%  gqa
llama-3.1-70b     128k     40.000  87.50%  gqa
Logical bytes; see kvplan fit.
"""

WIDE = """\
At TP 8 a token of deepseek-v3 takes 68.62 KiB on every rank, one of llama-3.1-70b 40.00 KiB.

KV cache of one session
                        KV         Per token  Per token   Session   Session,  Saving
Model          Context  dtype  TP  per layer   per rank  per rank  all ranks  vs MHA  Attention
                tokens                     B        KiB       GiB        GiB
───────────────────────────────────────────────────────────────────────────────────────────────
deepseek-v3         4k  bf16    8      1,152      68.62     0.268      2.145  98.24%  mla
deepseek-v3        32k  bf16    8      1,152      68.62     2.145     17.156  98.24%  mla
deepseek-v3       128k  bf16    8      1,152      68.62     8.578     68.625  98.24%  mla
───────────────────────────────────────────────────────────────────────────────────────────────
llama-3.1-70b       4k  bf16    8        512      40.00     0.156      1.250  87.50%  gqa
llama-3.1-70b      32k  bf16    8        512      40.00     1.250     10.000  87.50%  gqa
llama-3.1-70b     128k  bf16    8        512      40.00     5.000     40.000  87.50%  gqa
Logical bytes; see kvplan fit.
"""

REST_OF_REPORT = """\

Figure: Cache against context. Both axes logarithmic. (drawn in HTML)

Budget ─────────────────────────────────────────────────────────────────────────

Memory of one GPU
Line            Size     Low    High  Origin    Rule
                 GiB     GiB     GiB
────────────────────────────────────────────────────────────────────────────────
GPU memory   139.812       —       —  measured  what the driver reports for an
                                                H200
weights       84.000  83.000  85.000  exact     671.03 G parameters in FP8, one
                                                fp32 scale per 128x128 block
CUDA graphs    0.500   0.250   1.000  estimate  51 capture sizes

Capacity ───────────────────────────────────────────────────────────────────────

Quantity              Value  Meaning
──────────────────────────────────────────────
kv_tokens    562,240 tokens  GPU KV cache size
session            8.58 GiB  whole pages
decode step         19.3 ms  —

Checklist ──────────────────────────────────────────────────────────────────────

Items
Item    Verdict  Reason
───────────────────────────────────
kernel  pass     FlashMLA on Hopper
scales  warn     use fp8_ds_mla
seqs    fail     256 < 1,024

Sources ────────────────────────────────────────────────────────────────────────

Section 4.2 of https://arxiv.org/abs/2412.19437.

  kvplan report deepseek-v3 \\
    --tp 8
"""


@pytest.mark.parametrize(("width", "screen"), [(80, NARROW), (160, WIDE)])
def test_a_wide_table_is_cut_to_the_screen_and_whole_where_there_is_room(
    compare: Document, width: int, screen: str
) -> None:
    assert render(compare, Screen(width)) == screen


def test_a_report_shows_title_sections_figures_and_code(report: Document) -> None:
    text = render(report)

    assert text.startswith("Plan of deepseek-v3\n\nAt TP 8 ")
    assert text.endswith(REST_OF_REPORT)


def test_colour_codes_change_nothing_but_colour(report: Document) -> None:
    coloured = render(report, Screen(80, colour=True))
    bare = re.sub(r"\x1b\[[\d;]*m", "", coloured)

    assert "\x1b[32mpass" in coloured
    assert [line.rstrip() for line in bare.splitlines()] == render(report, Screen(80)).splitlines()


@pytest.mark.parametrize("width", [1, 39, 60, 80, 200])
def test_no_line_is_wider_than_the_screen(report: Document, width: int) -> None:
    document = Document("x", (), {}, sections=report.sections[:-1])  # a code block stays as it is, to be pasted

    assert max(map(len, render(document, Screen(width)).splitlines())) <= max(width, 40)


def test_a_long_command_is_not_broken() -> None:
    command = "vllm serve " + " ".join(f"--flag-{number}" for number in range(40))

    assert f"  {command}\n" in render(Document("x", (), {}, sections=[Section("Flags", code=[command])]))


def test_a_table_without_rows_still_shows_its_head() -> None:
    assert render(Document("x", [Table("None", (Column("a", "A"),), [])], {})) == "None\nA\n─\n"


def test_wide_characters_keep_columns_aligned() -> None:
    table = Table("", (Column("a", "A"), Column("b", "B", "count")), [("模型", 1), ("model", 2)])

    assert render(Document("x", [table], {})) == "A      B\n────────\n模型   1\nmodel  2\n"
