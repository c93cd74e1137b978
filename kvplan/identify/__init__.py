"""Which model and which GPU a log speaks of, where it says."""

from __future__ import annotations

from kvplan.identify.device import Device, gpu_of
from kvplan.identify.model import bundled, model_of

__all__ = ["Device", "bundled", "gpu_of", "model_of"]
