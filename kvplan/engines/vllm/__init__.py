"""vLLM, block for block: which blocks a release allocates, and how many tokens and sessions they hold.

engine      the engine: layout, budget and flags of a deployment
versions    what changed in which release, as data (0.6 to 0.33)
args        vLLM's own flags
mixers, recipe, served, dtypes, drafts     the model as vLLM sees it
backends, formats, blocksize, pages, groups, geometry, compressed, sizes     how the cache is cut
sessions, settings, fit, layout            what a pool of it holds
start, profile, memory                     what is left for the pool
checks, flags                              what it refuses, and how it is started
"""

from __future__ import annotations

from kvplan.engines.vllm.engine import ENGINE

__all__ = ["ENGINE"]
