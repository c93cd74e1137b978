"""A YAML file that describes one dataclass: read and validated, or written for people to edit.

Import this module inside a function: it loads pydantic and the YAML library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar, cast, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from kvplan import strict_yaml
from kvplan.errors import BadInput, KvplanError, UnknownName
from kvplan.files import MAX_SPEC_BYTES, read_bytes, replace_file
from kvplan.plain import TAG, field_types, tagged, to_plain, union_members

T = TypeVar("T")
MAX_NUMBER = 2**62


def read_yaml(path: Path, type_: type[T]) -> T:
    """The `type_` that a YAML file describes; `BadInput`, one line with file and key, where it does not."""
    return parse_yaml(read_bytes(path, MAX_SPEC_BYTES), type_, str(path))


def parse_yaml(data: bytes, type_: type[T], where: str) -> T:
    """As `read_yaml`, from the bytes of a file called `where`."""
    target: Any = type_
    value = strict_yaml.parse(data, where)
    if not isinstance(value, dict):
        raise BadInput(
            f"{where}: holds {_named(value)}; it should map keys such as {', '.join([*field_types(target)][:3])}"
        )
    try:
        _check_shape(target, value, "")
        return cast(T, _adapter(target).validate_json(json.dumps([value]))[0])
    except ValidationError as error:
        raise BadInput(f"{where}: {_first_problem(error, value)}") from error
    except KvplanError as error:
        raise BadInput(f"{where}: {error}") from error


def write_yaml(value: Any, path: Path) -> None:
    """Write a dataclass as YAML: fields in their order, defaults left out; the whole file or nothing."""
    text = strict_yaml.dump(to_plain(value, defaults=False))
    try:
        replace_file(path, text.encode("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    """A one-element tuple carries the configuration, which pydantic takes from no standard dataclass."""
    one: Any = GenericAlias(tuple, (type_,))
    return TypeAdapter(one, config=ConfigDict(extra="forbid", strict=True))


def _check_shape(hint: Any, data: Any, at: str) -> None:
    """Keys, tags of unions and the range of numbers; of keys pydantic would report those of every member of a union."""
    members = union_members(hint)
    kinds = tagged(members)
    if isinstance(data, dict) and kinds:
        _check_fields(_member(kinds, data, at), data, at)
    elif isinstance(data, dict) and is_dataclass(members[0]):
        _check_fields(members[0], data, at)
    elif isinstance(data, dict | list):
        _check_items(members[0], data, at)
    elif isinstance(data, int | float) and not 0 <= data <= MAX_NUMBER:
        raise BadInput(f"{at}: {data} is outside 0..2**62")


def _member(kinds: Mapping[str, Any], data: Mapping[str, Any], at: str) -> Any:
    kind = data.get(TAG)
    if not isinstance(kind, str):
        raise BadInput(f"{at}.{TAG}: is missing; one of {', '.join(kinds)}")
    if kind not in kinds:
        raise UnknownName.of(TAG, kind, kinds, where=f"{at}: ")
    return kinds[kind]


def _check_fields(cls: Any, data: Mapping[str, Any], at: str) -> None:
    types = field_types(cls)
    for key, value in data.items():
        if key not in types:
            raise UnknownName.of("key", key, types, where=f"{at}: " if at else "")
        _check_shape(types[key], value, f"{at}.{key}" if at else key)


def _check_items(hint: Any, data: dict[str, Any] | list[Any], at: str) -> None:
    arguments = get_args(hint) or (Any,)
    inner = arguments[0] if get_origin(hint) is tuple else arguments[-1]
    for step, item in data.items() if isinstance(data, dict) else enumerate(data):
        _check_shape(inner, item, f"{at}[{step}]" if isinstance(data, list) else f"{at}.{step}")


def _first_problem(error: ValidationError, data: Any) -> str:
    """The first error, of the right member where a union reports one for each."""
    errors = error.errors(include_url=False)
    wrong = {e["loc"][:-1] for e in errors if e["loc"][-1:] == (TAG,) and e["type"] == "literal_error"}
    kept = [e for e in errors if not any(e["loc"][: len(member)] == member for member in wrong)]
    return _sentence((kept or errors)[0], data)


def _sentence(error: ErrorDetails, data: Any) -> str:
    at = _where(error["loc"][1:], data)
    if error["type"] == "missing":
        return f"{at}: is missing"
    if not at:
        return error["msg"]
    return f"{at}: {_named(error['input'])} {error['msg'].removeprefix('Input ')}"


def _where(loc: tuple[int | str, ...], data: Any) -> str:
    """`layers[0].attention.head_dim`; the names of union members, which pydantic puts between, are left out."""
    text = ""
    for i, step in enumerate(loc):
        if isinstance(step, int):
            text, data = f"{text}[{step}]", dict(enumerate(data)).get(step) if isinstance(data, list) else None
        elif isinstance(data, dict) and (step in data or i == len(loc) - 1):
            text, data = f"{text}.{step}" if text else step, data.get(step)
    return text


def _named(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else repr(value)[:60]
