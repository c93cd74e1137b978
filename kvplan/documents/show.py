"""The answer of `kvplan show`: what exists, and where its figures come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kvplan import __version__
from kvplan.compare import number, resolve_dtype
from kvplan.errors import UnknownName
from kvplan.gpu import GpuSpec
from kvplan.model import ModelSpec, cost_line
from kvplan.parallel import Parallelism
from kvplan.table import Column, Document, Table
from kvplan.weights import params_active, params_by_part, params_total

LISTS = ("models", "gpus", "engines", "formats")


def answer(what: str) -> Document:
    """A list by its name, else a model, else a GPU."""
    from kvplan.catalog import load_gpu, load_model

    if what in LISTS:
        return {"models": _models, "gpus": _gpus, "engines": _engines, "formats": _formats}[what]()
    try:
        return model_document(load_model(what))
    except UnknownName as no_model:
        try:
            return gpu_document(load_gpu(what))
        except UnknownName:
            raise no_model from None


def _document(tables: list[Table], payload: dict[str, Any], lead: str = "", notes: tuple[str, ...] = ()) -> Document:
    return Document(
        command="show", lead=lead, tables=tables, payload={"command": "show", "version": __version__, **payload}, notes=notes
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
        ("source", spec.source),
        ("model type", spec.model_type),
        ("attention", spec.attention_family),
        ("layers", ", ".join(f"{n} x {kind}" for kind, n in spec.layers_by_kind().items())),
        ("longest context", f"{spec.max_position_embeddings:,} tokens" if spec.max_position_embeddings else "not stated"),
        ("cache per token, bf16", f"{number(line.bytes_per_token):,} B"),
        ("cache fixed per session", f"{line.fixed_bytes:,} B"),
        ("parameters", f"{params_total(spec) / 1e9:,.2f} B in all, {params_active(spec) / 1e9:,.2f} B active"),
        *_checkpoint(spec),
        ("hub ids", ", ".join(spec.hub_ids) or "none"),
    ]
    facts = Table(spec.name, (Column("fact", "fact"), Column("value", "value")), rows)
    parts = Table(
        "Parameters by part",
        (Column("part", "part"), Column("params", "parameters", "count")),
        sorted(params_by_part(spec).items(), key=lambda item: -item[1]),
    )
    return _document([facts, parts], payload, lead, spec.notes)


def _checkpoint(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """What the checkpoint says of its weights and of its KV cache."""
    if spec.quantization:
        q = spec.quantization
        yield "weights", f"{q.weight_format or q.quant_method}, rest {spec.torch_dtype}"
        yield "KV dtype asked for", q.kv_cache_dtype or "nothing said; quantized weights do not imply a quantized cache"
    else:
        yield "weights", spec.torch_dtype


def gpu_document(gpu: GpuSpec) -> Document:
    """One GPU: every figure with its source; what no source states is unknown."""
    plain = asdict(gpu)
    rows = [(name, _value(plain.get(name)), source) for name, source in gpu.sources.items()]
    columns = (Column("figure", "figure"), Column("value", "value"), Column("source", "source"))
    return _document([Table(gpu.name, columns, rows)], plain)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_value(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, (list, tuple)):
        return ".".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _models() -> Document:
    from kvplan.catalog import load_model, model_names

    specs = [load_model(name) for name in model_names()]
    lines = [(s, cost_line(s, s.max_position_embeddings or 4096, resolve_dtype(s, "bf16"), Parallelism())) for s in specs]
    columns = (
        Column("model", "model"),
        Column("attention", "attention"),
        Column("num_hidden_layers", "layers", "count"),
        Column("bytes_per_token", "per token, bf16", "exact_bytes"),
        Column("fixed_bytes", "fixed", "bytes"),
        Column("max_position_embeddings", "context", "tokens"),
    )
    rows = [
        (s.name, s.attention_family, s.num_hidden_layers, number(x.bytes_per_token), x.fixed_bytes, s.max_position_embeddings)
        for s, x in lines
    ]
    table = Table(f"{len(specs)} models", columns, rows)
    return _document([table], {"models": [dict(zip([c.key for c in columns], r, strict=True)) for r in rows]})


def _gpus() -> Document:
    from kvplan.catalog import gpu_names, load_gpu

    gpus = [load_gpu(name) for name in gpu_names()]
    columns = (
        Column("gpu", "GPU"),
        Column("memory_bytes", "memory", "bytes"),
        Column("bytes_per_s", "bandwidth", "bytes_per_s"),
        Column("bf16_flops_per_s", "bf16 dense", "flops_per_s"),
        Column("architecture", "architecture"),
    )
    rows = [(g.name, g.memory_bytes, g.bytes_per_s, g.flops_per_s.of("bf16"), g.architecture) for g in gpus]
    table = Table(f"{len(gpus)} GPUs, memory as the driver reports it", columns, rows)
    return _document([table], {"gpus": [dict(zip([c.key for c in columns], r, strict=True)) for r in rows]})


def _engines() -> Document:
    from kvplan.engines import engine, engine_names

    rows = [(e.name, e.default_version) for e in map(engine, engine_names())]
    columns = (Column("engine", "engine"), Column("default_version", "version unless one is given"))
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
        Column("bits", "bits", "count"),
        Column("scales", "scales"),
        Column("refuses", "cannot hold"),
    )
    note = ("Also any average width of 1 to 16 bits: 6bit.",)
    plain = [{"format": n, "bits": b} for n, b, *_ in rows]
    return _document([Table("KV dtypes", columns, rows)], {"formats": plain}, notes=note)


def _scales(bits: int, group: int | None) -> str:
    return "none in the cache" if not bits else f"{bits} bits per {f'{group} elements' if group else 'vector'}"
