"""Option types that several verbs share, and how their texts are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from kvplan.errors import BadInput
from kvplan.units import parse_tokens

T = TypeVar("T")


def _models(incomplete: str) -> list[str]:
    from kvplan.catalog import model_names

    return [n for n in model_names() if n.startswith(incomplete)]


def _gpus(incomplete: str) -> list[str]:
    from kvplan.catalog import gpu_names

    return [n for n in gpu_names() if n.startswith(incomplete)]


def _engines(incomplete: str) -> list[str]:
    from kvplan.engines import engine_names

    return [n.replace("_", "-") for n in engine_names() if n.startswith(incomplete.replace("-", "_"))]


def _kv_dtypes(incomplete: str) -> list[str]:
    from kvplan.storage import FORMATS

    return [n for n in ("auto", *FORMATS) if n.startswith(incomplete)]


MODEL_HELP = "A bundled name, a YAML spec, a config.json or its folder, or a hub id."
Model = Annotated[str, typer.Argument(help=MODEL_HELP, autocompletion=_models, show_default=False)]
Models = Annotated[list[str], typer.Argument(help=MODEL_HELP, autocompletion=_models, show_default=False)]
Gpu = Annotated[
    str, typer.Option("--gpu", help="A GPU of the catalogue, a YAML file, or `local`.", autocompletion=_gpus)
]
AnyGpu = Annotated[
    str | None, typer.Option("--gpu", help="As for fit; without one, caches are compared.", autocompletion=_gpus)
]
Engine = Annotated[
    str, typer.Option("--engine", help="Engine, with a version after `@`: vllm@0.19.", autocompletion=_engines)
]
KvDtype = Annotated[
    str,
    typer.Option("--kv-dtype", help="KV cache dtype; `auto` is what the engine chooses.", autocompletion=_kv_dtypes),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", help="table, markdown, html, json or csv (default: by the suffix of -o, else table)."
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Write a plot too (.svg, .png or .pdf).", show_default=False)]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to this file; its suffix chooses the format.")
]


def split(text: str, option: str, read: Callable[[str], T]) -> tuple[T, ...]:
    """`"1,2,4"` -> the values read, without repeats, in order."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if not parts:
        raise BadInput(f"{option}: empty; give one or more values, separated by commas")
    return tuple(dict.fromkeys(read(p) for p in parts))


def contexts(text: str, option: str = "--context") -> tuple[int, ...]:
    """`"4k,128k"` -> (4096, 131072)."""
    return split(text, option, lambda t: parse_tokens(t, where=option))


def whole_numbers(text: str, option: str, most: int = 65536) -> tuple[int, ...]:
    """`"1,2,4,8"` -> (1, 2, 4, 8); from 1 to `most`."""

    def read(part: str) -> int:
        if not part.isdecimal() or not 1 <= int(part) <= most:
            raise BadInput(f"{option}: {part!r} is not a whole number from 1 to {most}")
        return int(part)

    return split(text, option, read)


def size(text: str | None, option: str) -> int | None:
    """`"40GiB"` -> bytes; None stays None."""
    from kvplan.units import parse_bytes

    return None if text is None else parse_bytes(text, where=option)


def engine_args(pairs: Iterable[str]) -> dict[str, Any]:
    """`["async_scheduling=false", "num_gpu_blocks_override=100"]` -> values as JSON reads them, else as text."""
    import json

    args: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"--engine-arg: {pair!r} is not name=value")
        try:
            args[name.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            args[name.strip().replace("-", "_")] = value
    return args


def prices(text: str | None) -> dict[str, float]:
    """`"h100=2.5,h200=3.5"` -> price by GPU name; GPUs as the catalogue spells them."""
    from kvplan.catalog import load_gpu

    found = {}
    for pair in split(text, "--price", str) if text else ():
        name, equals, value = pair.partition("=")
        try:
            found[load_gpu(name.strip()).name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise BadInput(f"--price: {pair!r} is not GPU=price, such as h100=2.5")
    return found
