"""A config's figures, read by meaning, checked by type, and remembered: what no rule has read can be refused.

Absent and null are the same to a rule, but not to a class default: transformers leaves a nested sub-config's key out
where it equals the default of the class, so an absent key of a *nested* decoder means that default. A flat file states
what it means; a size that it lacks is refused rather than guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.errors import BadInput
from kvplan.hf.names import LARGEST, LARGEST_OTHER, SPELLINGS

_SHOWN = 60
_BY_LAYER = (
    "head_dim",
    "num_key_value_heads",
    "num_attention_heads",
    "v_head_dim",
    "sliding_window",
    "intermediate_size",
)
"""What `per_layer_config` may replace."""
_NOTED = ("sliding_window",)
"""Meanings whose other spellings are worth a remark: packagers rename this one."""


def shown(value: object) -> str:
    """A value as an error quotes it, cut to fit one line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Fields:
    """The keys of one JSON object. `where` names file and section; `read` collects the keys that rules used.

    `defaults`: sizes of the transformers class, which hold for absent keys of a nested object. `wrapper`: the object
    that this one is nested in, None for a flat file. `notes`: what a person should know of the reading.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        where: str,
        *,
        defaults: Mapping[str, int] | None = None,
        wrapper: Fields | None = None,
    ) -> None:
        self.raw = raw
        self.where = where
        self.defaults = defaults or {}
        self.wrapper = wrapper
        self.read: set[str] = set()
        self.sections: dict[str, Fields] = {}
        self.notes: list[str] = []

    @property
    def nested(self) -> bool:
        """Whether absent keys mean class defaults."""
        return self.wrapper is not None

    def note(self, text: str) -> None:
        """Keep a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def bad(self, key: str, problem: str) -> BadInput:
        """An error that names file, key and value."""
        value = f"{shown(self.raw[key])} " if key in self.raw else ""
        return BadInput(f"{self.where}: {key}: {value}{problem}")

    def has(self, name: str) -> bool:
        """Whether a figure is present and not null, under any of its spellings."""
        return self.value(name) is not None

    def absent(self, name: str) -> bool:
        """Whether no spelling of a figure is there at all, not even as null."""
        return not any(key in self.raw for key in (name, *SPELLINGS.get(name, ())))

    def explain(self, *keys: str) -> None:
        """Mark keys whose meaning a rule knows, though no number comes of them."""
        self.read.update(keys)

    def value(self, name: str) -> Any:
        """The raw value, or None. Two spellings that disagree are refused."""
        found: dict[str, Any] = {}
        for key in (name, *SPELLINGS.get(name, ())):
            if key in self.raw:
                self.read.add(key)
                if self.raw[key] is not None:
                    found[key] = self.raw[key]
        if not found:
            return None
        first, *others = found
        if name in _NOTED and first != name:
            self.note(f"{first} is read as {name}")
        for other in others:
            if found[other] != found[first]:
                raise self.bad(other, f"disagrees with {first}: {shown(found[first])}; they mean the same")
        return found[first]

    def key(self, name: str) -> str:
        """The spelling that the file uses."""
        return next((k for k in (name, *SPELLINGS.get(name, ())) if self.raw.get(k) is not None), name)

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A whole number from `least` up to what a real model can have; `default` where absent or null."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(self.key(name), "is not a whole number")
        most = LARGEST.get(name, LARGEST_OTHER)
        if not least <= value <= most:
            raise self.bad(self.key(name), f"is outside {least}..{most}")
        return value

    def one_count(self, key: str) -> int | None:
        """A count under one exact key, whatever its other spellings say."""
        if key not in self.raw:
            return None
        self.read.add(key)
        return Fields({key: self.raw[key]}, self.where).count(key)

    def need(self, name: str, *, least: int = 1) -> int:
        """A count that the rule cannot do without."""
        value = self.count(name, least=least)
        if value is None:
            raise BadInput(f"{self.where}: {name}: missing; this model_type needs it")
        return value

    def size(self, name: str) -> int | None:
        """A count, or the class default of a nested config; a flat file must state what the class would assume."""
        value = self.count(name)
        if value is not None or not self.absent(name):
            return value
        default = self.defaults.get(name)
        if default is None:
            return None
        if not self.nested:
            raise BadInput(f"{self.where}: {name}: missing; transformers would assume {default}, write what is meant")
        self.note(f"{name} is absent: {default}, the default of the transformers class")
        return default

    def optional_size(self, name: str, *, least: int = 1) -> int | None:
        """A size that a model may lack: absent from a flat file it is None, from a nested one the class default."""
        if self.absent(name) and not self.nested:
            return None
        value = self.count(name, least=least)
        return self.size(name) if value is None else value

    def size_from_zero(self, name: str) -> int:
        """A size that may be 0 (GLM-5.3's `qk_rope_head_dim`)."""
        value = self.count(name, least=0)
        return self.need_size(name) if value is None else value

    def need_size(self, name: str) -> int:
        """A size that no model lacks."""
        value = self.size(name)
        if value is None:
            raise BadInput(f"{self.where}: {name}: missing or null")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; `default` where absent or null."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.bad(self.key(name), "is neither true nor false")
        return value

    def number(self, name: str) -> float | None:
        """A finite number that is not negative, or None."""
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise self.bad(self.key(name), "is not a number from 0 up")
        return float(value)

    def text(self, name: str) -> str | None:
        """A string, or None."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self.bad(self.key(name), "is not a string")
        return value

    def sequence(self, name: str) -> Sequence[Any] | None:
        """A list, or None."""
        value = self.value(name)
        if value is not None and not isinstance(value, list):
            raise self.bad(self.key(name), "is not a list")
        return value

    def indices(self, name: str, *, first: int = 0) -> frozenset[int] | None:
        """A list of layer indices counted from `first`, as indices from 0."""
        values = self.sequence(name)
        if values is None:
            return None
        for value in values:
            if (
                not isinstance(value, int)
                or isinstance(value, bool)
                or not first <= value < LARGEST["num_hidden_layers"]
            ):
                raise self.bad(name, f"is not a list of layer indices from {first}")
        return frozenset(v - first for v in values)

    def overlaid(self, values: Mapping[str, Any]) -> Fields:
        """The same object with some figures replaced, under all their spellings; reading is still remembered here."""
        hidden = {key for name in values for key in SPELLINGS.get(name, ())}
        raw = {key: value for key, value in self.raw.items() if key not in hidden} | dict(values)
        other = Fields(raw, self.where, defaults=self.defaults, wrapper=self.wrapper)
        other.read, other.sections, other.notes = self.read, self.sections, self.notes
        self.read |= hidden & self.raw.keys()
        return other

    def apart(self) -> Fields:
        """The same object for a reader that explains nothing of the cache: what it reads stays unread here."""
        other = Fields(self.raw, self.where, defaults=self.defaults, wrapper=self.wrapper)
        other.notes = self.notes
        return other

    def at(self, layer: int) -> Fields:
        """One layer's view: transformers 5 writes what differs by layer into `per_layer_config`."""
        by_layer = self.section("per_layer_config")
        keys = by_layer.raw if by_layer is not None else ()
        key = next((k for k in keys if k.isdecimal() and int(k) == layer), None)  # "05" beside "11"
        values = by_layer.section(key) if by_layer is not None and key is not None else None
        if values is None:
            return self
        values.explain(*_BY_LAYER)
        return self.overlaid(values.raw)

    def section(self, name: str) -> Fields | None:
        """A nested object under its own name, remembered so that its unread keys count too."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.bad(name, "is not an object")
        if name not in self.sections:
            self.sections[name] = Fields(value, f"{self.where}: {name}")
        return self.sections[name]
