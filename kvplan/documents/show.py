"""The answer of `kvplan show`: what exists, and where its figures come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from kvplan import __version__
from kvplan.compare import number, resolve_dtype
from kvplan.errors import KvplanError, UnknownName
from kvplan.gpu import GpuSpec
from kvplan.model import Line, ModelSpec, cost_line
from kvplan.parallel import Parallelism
from kvplan.table import Column, Document, Quantity, Table, Unit
from kvplan.units import format_tokens
from kvplan.weights import params_active, params_by_part, params_total

LISTS = ("models", "gpus", "engines", "formats")


def answer(what: str) -> Document:
    """A list by its name, else a model, else a GPU."""
    from kvplan.catalog import load_gpu, load_model

    if what in LISTS:
        return {"models": _models, "gpus": _gpus, "engines": _engines, "formats": _formats}[what]()
    try:
        return model_document(load_model(what))
    except KvplanError as no_model:
        try:
            return gpu_document(load_gpu(what))
        except UnknownName as no_gpu:
            raise UnknownName(f"{no_model}; {no_gpu}") from None
        except KvplanError:
            raise no_model from None


def _document(tables: list[Table], payload: dict[str, Any], lead: str = "", notes: tuple[str, ...] = ()) -> Document:
    return Document(
        command="show",
        lead=lead,
        tables=tables,
        payload={"command": "show", "version": __version__, **payload},
        notes=notes,
    )


def model_document(spec: ModelSpec, lead: str = "") -> Document:
    """One model: layers by kind, cost per token, parameters by part."""
    fmt = resolve_dtype(spec, "bf16")
    context = spec.max_position_embeddings or 4096
    line = cost_line(spec, context, fmt, Parallelism())
    payload = {
        **asdict(spec),
        "attention": spec.attention_family,
        "num_hidden_layers": spec.num_hidden_layers,
        "layers": spec.layers_by_kind(),
        "bytes_per_token": number(line.bytes_per_token),
        "fixed_bytes_per_session": line.fixed_bytes,
        "params_total": params_total(spec),
        "params_active": params_active(spec),
        "params_by_part": params_by_part(spec),
    }
    rows = [
        ("Source", spec.source),
        ("Model type", spec.model_type),
        ("Attention", spec.attention_family),
        ("Layers", ", ".join(f"{n} x {kind}" for kind, n in spec.layers_by_kind().items())),
        ("Longest context", f"{format_tokens(context)} tokens" if spec.max_position_embeddings else "not stated"),
        *_checkpoint(spec),
        ("Hub ids", "\n".join(spec.hub_ids) or "none"),
    ]
    facts = Table(spec.name, (Column("fact", "Fact"), Column("value", "Value")), rows)
    return _document([facts, _cost(line, fmt.name), _parts(spec)], payload, lead, spec.notes)


def _cost(line: Line, dtype: str) -> Table:
    """What a session costs, in exact bytes."""
    rows = [
        ("for each token", Quantity(number(line.bytes_per_token), "exact_bytes")),
        ("fixed per session: states and full windows", Quantity(line.fixed_bytes, "exact_bytes")),
    ]
    return Table(f"Cache of one session in {dtype}", (Column("what", "What"), Column("bytes", "Cache")), rows)


def _parts(spec: ModelSpec) -> Table:
    """Parameters by part, largest first, with their share."""
    parts, total, active = params_by_part(spec), params_total(spec), params_active(spec)
    return Table(
        "Parameters by part",
        (Column("part", "Part"), Column("params", "Parameters", "count"), Column("share", "Share", "percent")),
        [(part, n, n / total if total else None) for part, n in sorted(parts.items(), key=lambda item: -item[1])],
        f"{total:,} in all" + (f", {active:,} of them active for a token." if active != total else "."),
    )


def _checkpoint(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """What the checkpoint says of its weights and of its KV cache."""
    if spec.quantization:
        q = spec.quantization
        yield "Weights", f"{q.weight_format or q.quant_method}, rest {spec.torch_dtype}"
        yield "KV dtype asked for", q.kv_cache_dtype or "nothing said; quantized weights do not imply a quantized cache"
    else:
        yield "Weights", spec.torch_dtype


def gpu_document(gpu: GpuSpec) -> Document:
    """One GPU: every figure with its source; what no source states is unknown."""
    return _document(list(gpu_tables(gpu)), asdict(gpu), notes=(gpu.note,) if gpu.note else ())


def gpu_tables(gpu: GpuSpec) -> Iterator[Table]:
    """Every figure under the name that a GPU file gives it; and below, where it is from."""
    figures = [(figure, cell) for name in gpu.sources for figure, cell in _figures(name, getattr(gpu, name))]
    yield Table(f"Figures of {gpu.name}", (Column("figure", "Figure"), Column("value", "Value")), figures)
    columns = (Column("figure", "Figure"), Column("source", "Source"))
    yield Table("Where they are from", columns, list(gpu.sources.items()))


def _figures(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """One cell for a figure, one for each figure of those that hold several."""
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        for part, figure in parts.items():
            if figure is not None:
                yield f"{name}.{part}", _cell(part if part in _UNITS else name, figure)
    else:
        yield name, _cell(name, value)


_UNITS: Mapping[str, Unit] = {
    "memory_bytes": "bytes", "l2_bytes": "bytes", "shared_memory_per_block_bytes": "exact_bytes",
    "bytes_per_s": "bytes_per_s", "measured_bytes_per_s": "bytes_per_s",
    "flops_per_s": "flops_per_s", "measured_flops_per_s": "flops_per_s", "sm_count": "count",
}  # fmt: skip


def _cell(name: str, value: Any) -> Any:
    """A value with its unit; a version such as (9, 0) as people write it."""
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return Quantity(value, _UNITS[name]) if name in _UNITS and not isinstance(value, str) else str(value)


def _models() -> Document:
    from kvplan.catalog import load_model, model_names

    specs = [load_model(name) for name in model_names()]
    lines = [cost_line(s, s.max_position_embeddings or 4096, resolve_dtype(s, "bf16"), Parallelism()) for s in specs]
    columns = (
        Column("model", "Model"),
        Column("attention", "Attention"),
        Column("bytes_per_token", "Per token", "exact_bytes"),
        Column("fixed_bytes", "Fixed", "bytes"),
        Column("max_position_embeddings", "Context", "tokens"),
    )
    rows = [
        (s.name, s.attention_family, number(line.bytes_per_token), line.fixed_bytes, s.max_position_embeddings)
        for s, line in zip(specs, lines, strict=True)
    ]
    plain = [
        dict(zip([c.key for c in columns], row, strict=True), num_hidden_layers=s.num_hidden_layers)
        for s, row in zip(specs, rows, strict=True)
    ]
    return _document([Table(f"{len(specs)} models and their cache in bf16", columns, rows)], {"models": plain})


def _gpus() -> Document:
    from kvplan.catalog import gpu_names, load_gpu

    gpus = [load_gpu(name) for name in gpu_names()]
    columns = (
        Column("gpu", "GPU"),
        Column("memory_bytes", "Memory", "bytes"),
        Column("bytes_per_s", "Bandwidth", "bytes_per_s"),
        Column("bf16_flops_per_s", "Dense bf16", "flops_per_s"),
        Column("architecture", "Architecture"),
    )
    rows = [(g.name, g.memory_bytes, g.bytes_per_s, g.flops_per_s.of("bf16"), g.architecture) for g in gpus]
    table = Table(f"{len(gpus)} GPUs, memory as the driver reports it", columns, rows)
    return _document([table], {"gpus": [dict(zip([c.key for c in columns], r, strict=True)) for r in rows]})


def _engines() -> Document:
    from kvplan.engines import engine, engine_names

    rows = [(e.name, e.default_version) for e in map(engine, engine_names())]
    columns = (Column("engine", "Engine"), Column("default_version", "Version unless one is given"))
    return _document(
        [Table("Engines", columns, rows)], {"engines": [{"engine": n, "default_version": v} for n, v in rows]}
    )


def _formats() -> Document:
    from kvplan.storage import FORMATS

    rows = [
        (name, f.default.bits, _scales(f.default.scale_bits, f.default.group), ", ".join(sorted(f.refuses)) or None)
        for name, f in FORMATS.items()
    ]
    columns = (
        Column("format", "KV dtype"),
        Column("bits", "Bits", "count"),
        Column("scales", "Scales"),
        Column("refuses", "Cannot hold"),
    )
    note = ("Also any average width of 1 to 16 bits: 6bit.",)
    plain = [{"format": n, "bits": b} for n, b, *_ in rows]
    return _document([Table("KV dtypes", columns, rows)], {"formats": plain}, notes=note)


def _scales(bits: int, group: int | None) -> str:
    return "none in the cache" if not bits else f"{bits} bits per {f'{group} elements' if group else 'vector'}"
