"""The serving checklist: what to settle before a plan is served, each item decided from the plan with its reason.

Each module holds rules of one subject and lists them as `CHECKS`; a rule looks at a `Plan` and returns an `Item`, or
None where it does not apply.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from kvplan.checks._item import Item

if TYPE_CHECKING:
    from kvplan.plan import Plan

__all__ = ["Item", "checklist"]


def checklist(p: Plan) -> tuple[Item, ...]:
    """Every item that applies to this plan: failures first, then warnings."""
    found: list[Item] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")):
        for check in import_module(f"{__name__}.{module}").CHECKS:
            item = check(p)
            if item is not None:
                found.append(item)
    return tuple(sorted(found, key=lambda item: ("fail", "warn", "pass").index(item.verdict)))
