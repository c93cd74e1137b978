from __future__ import annotations
from kvplan.hf.fields import Fields
from kvplan.model import ModelSpec
def rotary_tables(fields: Fields, spec: ModelSpec):
    return ()
