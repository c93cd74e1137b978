"""kvplan.formats.markdown."""

from __future__ import annotations

import re

import pytest

from kvplan.formats.markdown import render
from kvplan.table import Column, Document, Section, Table

COMPARE = """\
At TP 8 a token of deepseek-v3 takes 68.62 KiB on every rank, one of llama-3.1-70b 40.00 KiB.

### KV cache of one session

| Model         | Context (tokens) | KV dtype |  TP | Per token per layer (B) | Per token per rank (KiB) | Session per rank (GiB) | Session, all ranks (GiB) | Saving vs MHA | Attention |
| ------------- | ---------------: | -------- | --: | ----------------------: | -----------------------: | ---------------------: | -----------------------: | ------------: | --------- |
| deepseek-v3   |               4k | bf16     |   8 |                   1,152 |                    68.62 |                  0.268 |                    2.145 |        98.24% | mla       |
| deepseek-v3   |              32k | bf16     |   8 |                   1,152 |                    68.62 |                  2.145 |                   17.156 |        98.24% | mla       |
| deepseek-v3   |             128k | bf16     |   8 |                   1,152 |                    68.62 |                  8.578 |                   68.625 |        98.24% | mla       |
| llama-3.1-70b |               4k | bf16     |   8 |                     512 |                    40.00 |                  0.156 |                    1.250 |        87.50% | gqa       |
| llama-3.1-70b |              32k | bf16     |   8 |                     512 |                    40.00 |                  1.250 |                   10.000 |        87.50% | gqa       |
| llama-3.1-70b |             128k | bf16     |   8 |                     512 |                    40.00 |                  5.000 |                   40.000 |        87.50% | gqa       |

Logical bytes; see `kvplan fit`.

## Notes

- The latent is on all ranks; `--dcp 8` would share it out.
"""

REST_OF_REPORT = """\
## Checklist

### Items

| Item   | Verdict | Reason             |
| ------ | ------- | ------------------ |
| kernel | pass    | FlashMLA on Hopper |
| scales | warn    | use `fp8_ds_mla`   |
| seqs   | fail    | 256 < 1,024        |

## Sources

Section 4.2 of https://arxiv.org/abs/2412.19437.

```
kvplan report deepseek-v3 \\
  --tp 8
```

## Notes

- The latent is on all ranks; `--dcp 8` would share it out.
"""


def test_a_command_is_a_paragraph_a_table_and_its_notes(compare: Document) -> None:
    assert render(compare) == COMPARE


def test_a_report_has_headings_figures_code_and_addresses(report: Document) -> None:
    text = render(report)

    assert re.findall("^##? .*", text, re.MULTILINE) == [
        "# Plan of deepseek-v3", "## Compare", "## Budget", "## Capacity", "## Checklist", "## Sources", "## Notes",
    ]  # fmt: skip
    assert "\nFigure: Cache against context. Both axes logarithmic." in text
    assert text.endswith(REST_OF_REPORT)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a|b", r"a\|b"),
        ("`a|b`", r"`a\|b`"),
        ("two\nlines", "two<br>lines"),
        ("<script>", r"\<script>"),
        ("*bold* [link](x)", r"\*bold\* \[link](x)"),
        ("__init__ and fp8_ds_mla", r"\_\_init\_\_ and fp8_ds_mla"),
        ("https://example.org/__init__.py", "https://example.org/__init__.py"),
        ("&lt; & co", r"\&lt; & co"),
        ("c:\\d", r"c:\\d"),
    ],
)
def test_nothing_in_a_cell_becomes_markup(text: str, cell: str) -> None:
    table = Table("", (Column("a", "A"),), [(text,)])

    assert render(Document("x", [table], {})).splitlines()[-1] == f"| {cell:3} |"


@pytest.mark.parametrize(
    ("text", "paragraph"),
    [
        ("# no heading", r"\# no heading"),
        ("- no list", r"\- no list"),
        ("1. no list", r"1\. no list"),
        ("> x", r"\> x"),
    ],
)
def test_a_paragraph_stays_one_whatever_it_begins_with(text: str, paragraph: str) -> None:
    assert render(Document("x", (), {}, lead=text)) == paragraph + "\n"


def test_a_fence_is_longer_than_any_in_its_code() -> None:
    code = "```\nx\n```"

    assert render(Document("x", (), {}, sections=[Section("", code=[code])])) == f"````\n{code}\n````\n"
