"""Every kernel module offers backends, and says why one cannot run."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import pytest

pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.validate import kernels

MODULES = sorted(m.name for m in iter_modules(kernels.__path__) if not (m.ispkg or m.name.startswith("_")))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exports_a_backend_that_says_whether_it_can_run(name: str) -> None:
    backend = import_module(f"kvplan.validate.kernels.{name}").BACKEND
    assert backend in kernels.backends()
    assert backend.missing() is None or len(backend.missing().splitlines()) == 1


def test_names_are_unique_and_torch_is_always_there() -> None:
    names = [b.name for b in kernels.backends()]
    assert len(names) == len(set(names))
    assert {"torch-bmm", "torch-mm", "torch-sdpa"} <= {b.name for b in kernels.backends() if b.missing() is None}
