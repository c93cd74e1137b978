"""What a site measured, as `kvplan reconcile --calibrate` writes it and `kvplan fit --overheads` uses it.

Overheads (non-torch memory, activation peak, graphs) stand for the site. Weights are those of one model on one number
of ranks, so they are used for that alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvplan.budget import MEASURABLE
from kvplan.errors import BadInput, UnknownName
from kvplan.files import MAX_SPEC_BYTES, read_bytes, replace_file

if TYPE_CHECKING:
    from kvplan.parallel import Parallelism

OVERHEADS = (*(label for label in MEASURABLE if label != "weights"), "compute_buffer")
"""Budget lines that a site file may hold beside the weights."""
_KEYS = ("source", "overheads", "weights")
_WEIGHTS_KEYS = ("model", "tp", "pp", "bytes")


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of weights on the fullest rank of `tp` x `pp` ranks of a model."""

    model: str
    tp: int
    pp: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Site:
    """`source`: the log that the figures are from. `overheads`: budget line -> bytes."""

    source: str
    overheads: Mapping[str, int] = field(default_factory=dict)
    weights: Weights | None = None

    def given_bytes(self, model: str, parallel: Parallelism) -> dict[str, int]:
        """The lines for a plan of `model`: its weights too where they were measured on as many ranks."""
        own = self.weights
        same = own is not None and (own.model, own.tp, own.pp) == (model, parallel.tp, parallel.pp)
        return {**self.overheads, **({"weights": own.bytes} if own and same else {})}


def read_site(path: Path) -> Site:
    """The file that `write_site` writes, checked; `BadInput` or `UnknownName` names file, key and value."""
    from kvplan.strict_yaml import parse

    content = parse(read_bytes(path, MAX_SPEC_BYTES), str(path))
    if not isinstance(content, dict) or not isinstance(content.get("overheads"), dict):
        raise BadInput(f"{path}: has no mapping `overheads`; kvplan reconcile --calibrate writes one")
    _known(content, _KEYS, f"{path}: ")
    lines = _known(content["overheads"], OVERHEADS, f"{path}: overheads: ")
    overheads = {label: _size(value, f"{path}: overheads: {label}") for label, value in lines.items()}
    return Site(str(content.get("source", path)), overheads, _weights(content.get("weights"), f"{path}: weights: "))


def _known(content: dict[str, Any], names: tuple[str, ...], where: str) -> dict[str, Any]:
    for name in content:
        if name not in names:
            raise UnknownName.of("key", name, names, where=where)
    return content


def _size(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value < 2**50:
        raise BadInput(f"{where}: {value!r} is not a number of bytes")
    return value


def _weights(content: Any, where: str) -> Weights | None:
    if content is None:
        return None
    if not isinstance(content, dict) or set(_known(content, _WEIGHTS_KEYS, where)) != set(_WEIGHTS_KEYS):
        raise BadInput(f"{where}is not a mapping of {', '.join(_WEIGHTS_KEYS)}")
    tp, pp, size = (_size(content[key], f"{where}{key}") for key in ("tp", "pp", "bytes"))
    return Weights(str(content["model"]), tp, pp, size)


def write_site(path: Path, site: Site) -> None:
    """The file that `read_site` reads."""
    from kvplan.strict_yaml import dump

    own = site.weights
    weights = {"weights": {key: getattr(own, key) for key in _WEIGHTS_KEYS}} if own else {}
    try:
        replace_file(path, dump({"source": site.source, "overheads": dict(site.overheads), **weights}).encode())
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
