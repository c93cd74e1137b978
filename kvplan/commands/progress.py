"""A progress bar on stderr, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def tracked(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """The items as they come, drawing a bar where a person watches."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=label, total=total, console=Console(stderr=True), transient=True)
