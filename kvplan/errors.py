"""Every error that a user can cause.

    KvplanError             one line on stderr, exit 1
    ├── BadInput            a file, key, value or option that cannot be read as what it should be
    ├── UnknownName         a model, GPU, engine, format or key that does not exist (near matches named)
    ├── Unsupported         something that an engine, a kernel or kvplan itself cannot do
    └── MissingExtra        an optional package that is not installed

Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable


class KvplanError(Exception):
    """Base of all errors that are the input's fault; its text is one line for the user."""


class BadInput(KvplanError):
    """A value that cannot be what it is used as."""


class Unsupported(KvplanError):
    """A combination that an engine (named with version and feature) or kvplan refuses."""


class MissingExtra(KvplanError):
    """An optional package is absent; the text says how to install it."""


class UnknownName(KvplanError):
    """A name that is not in its catalogue."""

    @classmethod
    def of(cls, what: str, name: str, known: Iterable[str], *, where: str = "") -> UnknownName:
        """`what` (such as "model") and the wrong `name`, with the nearest of the `known` names."""
        import difflib

        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        if not near and len(known) <= 12:
            near = known
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        return cls(f"{where}unknown {what} {name!r}{hint}")
