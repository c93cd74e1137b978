"""The pages of docs/reference that are written whole, from the program itself: its options, catalogues and rules."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.markdown import joined, table
from docs.reference_engines import engines
from kvplan.attention import Attention
from kvplan.cache import CacheTensor, Fixed, PerToken
from kvplan.catalog import gpu_names, load_gpu, load_model, model_names
from kvplan.engines import engine, engine_names
from kvplan.engines.base import Deployment
from kvplan.errors import KvplanError
from kvplan.model import ModelSpec, cost_line
from kvplan.parallel import Parallelism
from kvplan.storage import FORMATS, KvFormat, kv_format
from kvplan.units import format_bytes, format_rate, format_tokens
from kvplan.weights import params_active, params_total


def cli() -> str:
    """Every verb with its arguments and options, as `--help` has them."""
    import typer

    from kvplan.cli import app, verbs

    root: Any = typer.main.get_command(app)
    return joined(
        "# Command line",
        "What `kvplan --help` and `kvplan VERB --help` say. Exit codes: 0 answered, 1 kvplan cannot answer (one line "
        "says why), 2 usage, 3 it does not fit or does not hold, with `--check`.",
        table(("verb", "does"), ((f"[`{v}`](#kvplan-{v})", _lead(root.get_command(None, v))) for v in verbs())),
        *(part for verb in verbs() for part in _verb(verb, root.get_command(None, verb))),
    )


def _lead(command: Any) -> str:
    return " ".join(str(command.help).split("\n\n")[0].split())


def _verb(verb: str, command: Any) -> Iterator[str]:
    options = [p for p in command.params if p.opts[0].startswith("-")]
    arguments = [p for p in command.params if p not in options]
    needed = [f"{p.opts[0]} {p.name.upper()}" for p in options if p.required]
    words = ["kvplan", verb, *map(_argument, arguments), *needed, "[options]"]
    yield f"## kvplan {verb}"
    yield _lead(command)
    yield f"```text\n{' '.join(words)}\n```"
    example = [text for text in str(command.help).splitlines() if text.startswith("Example: ")]
    yield "\n".join(f"Example: `{text.removeprefix('Example: ')}`" for text in example)
    yield table(("option", "default", "what"), (_option(p) for p in (*arguments, *options)))


def _argument(param: Any) -> str:
    name = param.name.upper() + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _option(param: Any) -> tuple[str, str, str]:
    """Names, default and help of one argument or option."""
    names = [f"`{name}`" for name in param.opts] if param.opts[0].startswith("-") else [param.name.upper()]
    default = "needed" if param.required else "" if param.default in (None, False) else f"`{param.default}`"
    return ", ".join(names), default, param.help or ""


def models() -> str:
    """Every bundled spec."""
    specs = [load_model(name) for name in model_names()]
    return joined(
        "# Models",
        f"{len(specs)} models come with kvplan; `kvplan show MODEL` prints one with its parameters by part. Cache: "
        "logical bytes of one session on one rank in bf16, at the longest context that the model states. Any other "
        "model: give its `config.json`, the folder that holds it, or a YAML spec.",
        table(("model", "layers", "B/token", "fixed", "context", "parameters", "active"), map(_model, specs)),
        "## Sources and hub ids",
        "Where the figures are from, and the ids that resolve offline, for they share this geometry.",
        table(("model", "source", "hub ids"), ((f"`{s.name}`", s.source, ", ".join(s.hub_ids)) for s in specs)),
    )


def _model(spec: ModelSpec) -> tuple[object, ...]:
    context = spec.max_position_embeddings
    line = cost_line(spec, context or 4096, kv_format("bf16"), Parallelism())
    layers = ", ".join(f"{n} {kind}" for kind, n in spec.layers_by_kind().items())
    total, active = (f"{count / 1e9:,.2f} B" for count in (params_total(spec), params_active(spec)))
    return (
        f"`{spec.name}`", layers, f"{float(line.bytes_per_token):,.10g}", format_bytes(line.fixed_bytes),
        format_tokens(context) if context else "", total, active,
    )  # fmt: skip


def gpus() -> str:
    """Every GPU, and every figure of it with its source."""
    specs = [load_gpu(name) for name in gpu_names()]
    rows = (
        (
            f"[`{g.name}`](#{g.name})", format_bytes(g.memory_bytes),
            format_rate(g.bytes_per_s, "B/s") if g.bytes_per_s else "unknown",
            format_rate(g.flops_per_s.bf16, "FLOP/s") if g.flops_per_s.bf16 else "unknown", g.architecture,
        )
        for g in specs
    )  # fmt: skip
    return joined(
        "# GPUs",
        f"{len(specs)} devices. Memory is what the driver reports to an engine, not the figure on the box; rates are "
        "dense. What no source states is unknown. A YAML file with the same keys, or `local`, can stand for a name.",
        table(("GPU", "memory", "bandwidth", "dense bf16", "architecture"), rows),
        *(part for name in gpu_names() for part in _gpu(name)),
    )


def _gpu(name: str) -> Iterator[str]:
    from kvplan.documents.show import gpu_tables
    from kvplan.formats.markdown import render
    from kvplan.table import Document

    yield f"## {name}"
    spec = load_gpu(name)
    yield f"Also called {', '.join(spec.aliases)}." if spec.aliases else ""
    for part in gpu_tables(spec):
        text = render(Document(command="show", tables=[part], payload={}))
        yield "\n".join(row for row in text.splitlines() if not row.startswith("#"))
    yield spec.note


PROBES = {"heads": "llama-3.1-8b", "latent": "deepseek-v3", "sparse": "deepseek-v3.2"}
"""Caches that an engine may hold in a KV dtype, each with a model that has it."""
PROBE_GPUS = ("h200", "b200")


def formats() -> str:
    """Every KV dtype: bytes, and which engine holds what in it."""
    found = [engine(name) for name in engine_names()]
    rows = (
        (f"`{name}`", *_sizes(fmt), *(_words(list(_holds(e, name))) for e in found)) for name, fmt in FORMATS.items()
    )
    header = ("KV dtype", "bits", "scales", "128 elements, B", "MLA entry, B", *(e.name for e in found))
    return joined(
        "# KV dtypes",
        "What `--kv-dtype` takes. Bytes of a vector hold its scales and padding; scales of one per tensor lie outside "
        "the cache. Under an engine: the caches that it holds in this dtype, heads, latents or latents with a sparse "
        "indexer; asked for "
        + ", ".join(f"`{model}`" for model in PROBES.values())
        + f", on {' or '.join(f'`{gpu}`' for gpu in PROBE_GPUS)}. `auto` is what the engine chooses. `kvplan compare` "
        "also takes an average width of 1 to 16 bits, such as `6bit`.",
        table(header, rows),
    )


def _sizes(fmt: KvFormat) -> tuple[object, ...]:
    storage = fmt.default
    scales = f"{storage.scale_bits} bits per {storage.group or 'vector'}" if storage.scale_bits else ""
    heads = "" if "k" in fmt.refuses else storage.vector_bytes(128)
    entry = "" if "latent" in fmt.refuses else fmt.of("latent").vector_bytes(512) + fmt.of("rope").vector_bytes(64)
    return storage.bits, scales, heads, entry


def _words(caches: list[str]) -> str:
    return "all" if len(caches) == len(PROBES) else ", ".join(caches) or "no"


def _holds(found: Any, dtype: str) -> Iterator[str]:
    for cache, model in PROBES.items():
        spec = load_model(model)
        if any(_planned(found, spec, gpu, dtype) for gpu in PROBE_GPUS):
            yield cache


def _planned(found: Any, spec: ModelSpec, gpu: str, dtype: str) -> bool:
    deployment = Deployment(spec=spec, gpu=load_gpu(gpu), max_model_len=8192, parallel=Parallelism(), kv_dtype=dtype)
    try:
        found.layout(deployment)
    except KvplanError:
        return False
    return True


def kinds() -> str:
    """Every attention kind with the tensors of an example."""
    return joined(
        "# Attention kinds",
        "`kind` names a kind in a model spec; one file per family in `kvplan/attention`. MHA and MQA are `gqa` with as "
        "many KV heads as query heads, or one. Tensors: heads x elements, and how many slots a session has of them.",
        table(
            ("kind", "what", "layers of it", "example", "tensors of one layer"), map(_kind, typing.get_args(Attention))
        ),
    )


def _kind(cls: type) -> tuple[str, ...]:
    kind = typing.get_type_hints(cls)["kind"].__args__[0]
    uses = [(s.name, a) for s in map(load_model, model_names()) for _, a in s.mixers() if a.kind == kind]
    what = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    types = ", ".join(f"`{t}`" for t in sorted({a.layer_type for _, a in uses}))
    name, example = max(uses, key=lambda use: len(use[1].tensors()), default=("", None))
    tensors = "; ".join(map(_tensor, example.tensors())) if example else ""
    return f"`{kind}`", what, types, f"`{name}`" if name else "", tensors or "none"


def _tensor(tensor: CacheTensor) -> str:
    law = tensor.law
    if isinstance(law, PerToken):
        slots = "each token" if law.ratio == 1 else f"every {law.ratio} tokens"
    elif isinstance(law, Fixed):
        slots = "once" if law.count == 1 else f"{law.count:,} slots"
    else:
        slots = f"the last {law.tokens:,} tokens"
    return f"{tensor.role} {tensor.heads} x {tensor.dim:,}, {slots}"


PAGES: tuple[tuple[str, Callable[[], str]], ...] = tuple(
    (f"docs/reference/{write.__name__}.md", write) for write in (cli, models, gpus, engines, formats, kinds)
)


def pages() -> Iterator[tuple[str, str]]:
    """(path from the root, text)."""
    for path, write in PAGES:
        yield path, write()
