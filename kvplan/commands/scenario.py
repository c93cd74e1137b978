"""The options that describe one scenario, carried to every verb that takes them by one decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from kvplan.commands.options import Engine, Gpu, KvDtype, contexts, engine_args, size

if TYPE_CHECKING:
    from kvplan.plan import Scenario


def _options(
    *,
    gpu: Gpu,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs in all (default: tp x pp x dp).")] = None,
    engine: Engine = "vllm",
    tp: Annotated[
        int | None, typer.Option(min=1, help="Tensor parallelism (default: all GPUs; llama.cpp: --pp).")
    ] = None,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    dp: Annotated[int, typer.Option(min=1, help="Replicas with sessions of their own.")] = 1,
    dcp: Annotated[int, typer.Option(min=1, help="Decode context parallelism inside TP.")] = 1,
    ep: Annotated[int, typer.Option(min=1, help="Expert parallelism.")] = 1,
    context: Annotated[
        str | None, typer.Option(help="Maximum model length; further lengths after commas are tabled.")
    ] = None,
    kv_dtype: KvDtype = "auto",
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(min=0.01, max=1.0, help="The engine's memory fraction.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Sessions that run at once.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of one step.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens of one block.")] = None,
    kv_pool: Annotated[str | None, typer.Option(help="KV pool of one GPU, such as 40GiB; replaces the budget.")] = None,
    kv_pool_bytes: Annotated[int | None, typer.Option(min=1, help="The same in bytes.")] = None,
    engine_arg: Annotated[
        list[str] | None, typer.Option(help="An engine flag under its own name: name=value. Repeatable.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Measured weights of one GPU, such as 80.2GiB.")] = None,
    activation: Annotated[str | None, typer.Option(help="Measured activation peak.")] = None,
    non_torch: Annotated[str | None, typer.Option(help="Measured memory outside the framework.")] = None,
    cuda_graphs: Annotated[str | None, typer.Option(help="Measured CUDA graphs.")] = None,
    overheads: Annotated[str | None, typer.Option(help="A site file of `kvplan reconcile --calibrate`.")] = None,
) -> None:
    """Only its signature is used."""


OPTIONS = tuple(inspect.signature(_options, eval_str=True).parameters.values())


def scenario_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give `verb` the options of a scenario; it receives `read`, which makes the Scenario of a model's name.

    `read(model)` returns the scenario and the further context lengths that were asked for. An option that the verb
    declares itself stands in place of the one here, and the verb receives its value too.
    """
    hints = get_type_hints(verb, include_extras=True)
    declared = inspect.signature(verb).parameters
    own = {name: p.replace(annotation=hints[name]) for name, p in declared.items() if name != "read"}
    options = [own.get(option.name, option) for option in OPTIONS]

    @wraps(verb)
    def command(**values: Any) -> None:
        given = {option.name: values[option.name] for option in options}
        values = {name: value for name, value in values.items() if name in own}
        verb(**values, read=lambda model: read_scenario(model, **given))

    arguments = [p for p in own.values() if p.default is inspect.Parameter.empty]
    rest = [p for p in own.values() if p not in arguments and p not in options]
    parameters = [*arguments, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*options, *rest))]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def read_scenario(model: str, **given: Any) -> tuple[Scenario, tuple[int, ...]]:
    """The options' texts -> a Scenario, and the context lengths after the first."""
    from kvplan.budget import MEASURABLE
    from kvplan.catalog import load_gpu, load_model
    from kvplan.plan import Scenario

    lengths = contexts(given.pop("context")) if given["context"] else (given.pop("context"),)
    pool = size(given.pop("kv_pool"), "--kv-pool")
    measured = {name: size(given.pop(name), f"--{name.replace('_', '-')}") for name in MEASURABLE}
    overheads = given.pop("overheads")
    scenario = Scenario(
        model=load_model(model),
        gpu=load_gpu(given.pop("gpu")),
        context=lengths[0],
        kv_pool_bytes=pool or given.pop("kv_pool_bytes"),
        engine_args=engine_args(given.pop("engine_arg") or ()),
        given_bytes={name: value for name, value in measured.items() if value is not None},
        **{k: v for k, v in given.items() if k != "kv_pool_bytes"},
    )
    return _with_site(scenario, overheads) if overheads else scenario, lengths[1:]


def _with_site(scenario: Scenario, path: str) -> Scenario:
    """The scenario with what a site measured, where the user gives no figure of their own."""
    from dataclasses import replace
    from pathlib import Path

    from kvplan.overheads import read_site

    site = read_site(Path(path)).given_bytes(scenario.model.name, scenario.parallelism())
    return replace(scenario, given_bytes={**site, **scenario.given_bytes})
