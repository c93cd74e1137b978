"""Real MLA decode on the local device, against the prediction: numbers, bytes, seconds.

This room needs torch, an optional extra; `require_torch` says in one line how to get it.
"""

from __future__ import annotations

from importlib.util import find_spec

from kvplan.errors import MissingExtra


def require_torch() -> None:
    """`MissingExtra` where torch is not installed."""
    if find_spec("torch") is None:
        raise MissingExtra("validate runs on torch, which is not installed; pip install 'kvplan[validate]'")
