"""Tables whose columns are those that have something to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.table import Column, Table


def table(title: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]], *, index_columns: int = 1) -> Table:
    """A table without the columns that are unknown in every row; the first `index_columns` stay."""
    kept = [n for n in range(len(columns)) if n < index_columns or any(row[n] is not None for row in rows)]
    return Table(
        title, tuple(columns[n] for n in kept), [[row[n] for n in kept] for row in rows], index_columns=index_columns
    )
