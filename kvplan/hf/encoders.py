from __future__ import annotations
from kvplan.hf.fields import Fields
from kvplan.model import ModelSpec
def encoder_weights(fields: Fields, top: Fields, spec: ModelSpec):
    return ()
