"""Which model and which GPU a log speaks of, where it says."""

from __future__ import annotations

from kvplan.identify.device import gpu_of
from kvplan.identify.model import model_of

__all__ = ["gpu_of", "model_of"]
