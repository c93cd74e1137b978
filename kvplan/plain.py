"""Dataclasses to plain data (dicts, lists, numbers, text) and back, without validation.

For data that kvplan itself wrote, such as cache entries; what people write goes through `kvplan.specfile`. A union of
dataclasses is told apart by the field `kind`, a Literal of one value in each member.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]
_UNIONS = (Union, types.UnionType)
TAG = "kind"


@cache
def field_types(cls: Any) -> Mapping[str, Any]:
    """Field name -> type, with annotations resolved, in the order of the dataclass."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def union_members(hint: Any) -> tuple[Any, ...]:
    """What a union may hold, without None; any other type is the one thing that it may hold."""
    if get_origin(hint) not in _UNIONS:
        return (hint,)
    return tuple(m for m in get_args(hint) if m is not type(None))


def tagged(members: tuple[Any, ...]) -> dict[str, Any]:
    """`kind` -> dataclass for a union of several dataclasses; empty for any other."""
    if len(members) < 2 or not all(is_dataclass(m) for m in members):
        return {}
    return {get_args(field_types(m)[TAG])[0]: m for m in members}


def from_plain(cls: type[T], data: Any) -> T:
    """A `cls` from what `to_plain` made of one. Data of another shape raises KeyError, TypeError or ValueError."""
    target: Any = cls
    return cast(T, _reader(target)(data))


@cache
def _reader(hint: Any) -> Reader:
    members = union_members(hint)
    kinds = tagged(members)
    if kinds:
        return partial(_read_tagged, kinds)
    if len(members) > 1:
        return _as_it_is
    (single,) = members
    read: Reader = partial(_build, single) if is_dataclass(single) else _container_reader(single)
    return read if single is hint else partial(_read_optional, read)


def _container_reader(hint: Any) -> Reader:
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and args[1:] == (...,):
        return partial(_read_tuple, _reader(args[0]))
    if origin is tuple:
        return partial(_read_fixed_tuple, tuple(_reader(a) for a in args))
    if origin in (dict, Mapping):
        return partial(_read_mapping, _reader(args[1]))
    return _as_it_is


def _as_it_is(data: Any) -> Any:
    return data


def _read_optional(read: Reader, data: Any) -> Any:
    return None if data is None else read(data)


def _read_tuple(read: Reader, data: list[Any]) -> tuple[Any, ...]:
    return tuple([read(item) for item in data])


def _read_fixed_tuple(readers: tuple[Reader, ...], data: list[Any]) -> tuple[Any, ...]:
    return tuple(read(item) for read, item in zip(readers, data, strict=True))


def _read_mapping(read: Reader, data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: read(item) for key, item in data.items()}


def _read_tagged(kinds: Mapping[str, Any], data: Any) -> Any:
    return None if data is None else _build(kinds[data[TAG]], data)


def _build(cls: Any, data: Mapping[str, Any]) -> Any:
    readers = _field_readers(cls)
    return cls(**{name: readers[name](data[name]) for name in data})


@cache
def _field_readers(cls: Any) -> Mapping[str, Reader]:
    return {name: _reader(hint) for name, hint in field_types(cls).items()}


def to_plain(value: Any, *, defaults: bool = True) -> Any:
    """Dicts in the order of the fields, and lists; without `defaults`, fields at their default are left out."""
    if is_dataclass(value):
        kept = (f for f in fields(value) if defaults or f.name == TAG or not _is_default(f, getattr(value, f.name)))
        return {f.name: to_plain(getattr(value, f.name), defaults=defaults) for f in kept}
    if isinstance(value, list | tuple):
        return [to_plain(item, defaults=defaults) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item, defaults=defaults) for key, item in value.items()}
    return value


def _is_default(field: Field[Any], value: Any) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and bool(value == field.default)


@cache
def schema(cls: Any) -> str:
    """Fields, types and defaults of `cls` and of the dataclasses inside it, as text: it changes when they do."""
    seen: dict[Any, str] = {}
    todo = [cls]
    while todo:
        found = todo.pop()
        if found not in seen:
            seen[found] = ", ".join(f"{f.name}: {f.type}{_default_text(f)}" for f in fields(found))
            todo += [inner for hint in field_types(found).values() for inner in _dataclasses(hint)]
    return "\n".join(sorted(f"{c.__qualname__}({text})" for c, text in seen.items()))


def _default_text(field: Field[Any]) -> str:
    return "" if field.default is MISSING else f" = {field.default!r}"


def _dataclasses(hint: Any) -> list[Any]:
    if is_dataclass(hint):
        return [hint]
    arguments = () if get_origin(hint) is Literal else get_args(hint)
    return [found for argument in arguments for found in _dataclasses(argument)]
