"""Markdown for pages that scripts write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; bars in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def joined(*parts: str) -> str:
    """Paragraphs, empty ones left out."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
