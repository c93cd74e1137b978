"""Markdown for pages that scripts write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"(?:unknown|[-+]?[\d,.]+ ?(?:%|B|[KMGT]iB|k|M|[kMGTP]?(?:B|FLOP)/s)?)?")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; columns of figures stand to the right, bars in cells are escaped."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    figures = [all(_NUMBER.fullmatch(row[i]) for row in cells) for i in range(len(header))]
    rule = ["---:" if right else "---" for right in figures]
    return "\n".join(f"| {' | '.join(line)} |" for line in ([*header], rule, *cells))


def joined(*parts: str) -> str:
    """Paragraphs, empty ones left out."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
