"""Every kernel module offers backends, and says why one cannot run."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import pytest

pytest.importorskip("torch", reason="the extra `validate` is not installed")

from kvplan.validate import kernels  # noqa: E402

MODULES = sorted(m.name for m in iter_modules(kernels.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exports_backends(name: str) -> None:
    found = import_module(f"kvplan.validate.kernels.{name}").BACKENDS
    assert found
    assert all(b.missing() is None or isinstance(b.missing(), str) for b in found)


def test_names_are_unique_and_torch_is_always_there() -> None:
    names = [b.name for b in kernels.backends()]
    assert len(names) == len(set(names))
    assert {"torch-bmm", "torch-mm", "torch-sdpa"} <= {b.name for b in kernels.backends() if b.missing() is None}
