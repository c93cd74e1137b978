"""Decode kernels, one module each; `backends()` finds them.

Every module whose name does not start with an underscore exports a `Backend` as `BACKEND`; packages hold their parts.
A module whose library is absent still imports: its backend says what is missing. Forms of one library share their name
up to the first dash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

from torch import Tensor

from kvplan.validate.paged import PagedCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One absorbed MLA decode step of one layer.

    query [batch, query_tokens, heads, latent + rope] in bf16 (or fp32), against `cache`. The last query of a session
    stands at its last token; earlier ones see one token less each.
    """

    query: Tensor
    cache: PagedCache
    softmax_scale: float
    latent_dim: int = 512


Launch = Callable[[], Tensor]
"""Runs the step and returns [batch, query_tokens, heads, latent]; may reuse one output buffer."""


class Backend(Protocol):
    """One way to run a `Problem`."""

    @property
    def name(self) -> str:
        """What stands in the table of results, such as `triton` or `torch-mm`."""
        ...

    def missing(self) -> str | None:
        """Why this backend cannot run on this machine at all; None where it can."""
        ...

    def refusal(self, problem: Problem) -> str | None:
        """Why it cannot run this problem; None where it can."""
        ...

    def prepare(self, problem: Problem) -> Launch:
        """Everything that a serving engine would do once, outside the timed step."""
        ...

    def scratch_bytes(self, problem: Problem) -> int | None:
        """What one launch allocates at its peak, its output included; None where the library does not tell."""
        ...


def backends() -> tuple[Backend, ...]:
    """The backend of every module here, sorted by module name, whether it can run or not."""
    modules = sorted(m.name for m in iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))
    return tuple(import_module(f"{__name__}.{name}").BACKEND for name in modules)


def library(backend: Backend) -> str:
    """`torch` of `torch-mm`."""
    return backend.name.partition("-")[0]
