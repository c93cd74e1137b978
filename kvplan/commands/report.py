"""`kvplan report`: the whole plan as one document."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvplan.commands.options import AnyGpu, Format, Models, Output, contexts
from kvplan.commands.scenario import OPTIONS, scenario_options
from kvplan.errors import BadInput

if TYPE_CHECKING:
    from kvplan.documents.compare import Question

_WITHOUT_GPU = {"context", "tp", "kv_dtype"}
"""Options that mean something to the cache alone."""
_NOT_REPEATED = {"output", "format"}
"""Options that say where the answer goes, not what it is."""


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    @scenario_options
    def report(
        ctx: typer.Context,
        models: Models,
        read: Any,
        gpu: AnyGpu = None,
        timestamp: Annotated[bool, typer.Option("--timestamp", help="Say when the report was written.")] = False,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """The whole plan of MODELS as one document: answer, cache, budget, capacity, speed, checklist, sources.

        Example: kvplan report deepseek-v3 llama-3.1-70b --gpu h200 --gpus 8 --tp 8 -o plan.html
        """
        from kvplan.commands.progress import tracked
        from kvplan.documents.report import Colophon, of_models, of_plans, study
        from kvplan.formats import write

        names = tuple(dict.fromkeys(models))
        colophon = Colophon(_command(ctx), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC" if timestamp else None)
        if gpu is None:
            document = of_models(_question(ctx, names), colophon)
        else:
            document = of_plans([study(*read(name)) for name in tracked(names, len(names), "models")], colophon)
        write(document, format, output)


def _question(ctx: typer.Context, names: tuple[str, ...]) -> Question:
    """The comparison for a report without a GPU; options that need one are refused."""
    from kvplan.catalog import load_model
    from kvplan.documents.report import COMPARED_TOKENS, COMPARED_TPS, Question

    for option in OPTIONS:
        if option.name not in _WITHOUT_GPU and _is_given(ctx, option.name):
            raise BadInput(f"--{option.name.replace('_', '-')}: says how a GPU is used; name it with --gpu")
    tp, lengths = ctx.params["tp"], ctx.params["context"]
    return Question(
        specs=tuple(load_model(name) for name in names),
        contexts=contexts(lengths) if lengths else COMPARED_TOKENS,
        tps=tuple(sorted({*COMPARED_TPS, tp or 1})),
        at_tp=tp,
        kv_dtypes=(ctx.params["kv_dtype"],),
        explain=True,
    )


def _command(ctx: typer.Context) -> str:
    """The command line that was typed, for a shell."""
    words = [f"kvplan {ctx.info_name}"]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in _NOT_REPEATED and _is_given(ctx, name):
            words += _words(parameter, ctx.params[name])
    return " ".join(words)


def _words(parameter: Any, value: Any) -> Iterator[str]:
    """One parameter as it is written: arguments bare, options after their name, flags alone."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if parameter.param_type_name == "argument":
        yield from (shlex.quote(str(one)) for one in values)
    elif value is True:
        yield parameter.opts[0]
    else:
        yield from (f"{parameter.opts[0]} {shlex.quote(str(one))}" for one in values)


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
