"""What a running engine said: its start-up log or its metrics, as values with their line, rank and resolution."""

from __future__ import annotations

from kvplan.logs.metrics import fetch_metrics, parse_metrics
from kvplan.logs.observed import Observed, Pool, Reading
from kvplan.logs.reader import read_log

__all__ = ["Observed", "Pool", "Reading", "fetch_metrics", "parse_metrics", "read_log"]
