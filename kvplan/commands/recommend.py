"""`kvplan recommend`: the cheapest plan that meets a target."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.commands.options import Engine, Format, Model, Output, prices, split
from kvplan.units import parse_tokens


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def recommend(
        model: Model,
        concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.", show_default=False)],
        context: Annotated[str, typer.Option(help="Tokens of each session.", show_default=False)],
        gpus_from: Annotated[str, typer.Option(help="GPU types to choose from.")] = "h100,h200,b200,a100-80gb,mi300x",
        engine: Engine = "vllm",
        kv_dtype: Annotated[str, typer.Option(help="KV dtypes to try.")] = "auto,fp8",
        min_tokens_per_s: Annotated[float | None, typer.Option(min=0.0, help="Decode speed of one session.")] = None,
        price: Annotated[str | None, typer.Option(help="Price of a GPU and hour: h100=2.5,h200=3.5.")] = None,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """The cheapest GPUs, spread and KV dtype that serve CONCURRENCY sessions of MODEL at this context.

        Example: kvplan recommend deepseek-v3 --concurrency 64 --context 32k --gpus-from h100,h200
        """
        from kvplan.catalog import load_gpu, load_model
        from kvplan.documents.recommend import answer
        from kvplan.formats import write
        from kvplan.plan import Scenario
        from kvplan.recommend import Target, candidates

        types = split(gpus_from, "--gpus-from", load_gpu)
        base = Scenario(model=load_model(model), gpu=types[0], engine=engine, context=parse_tokens(context))
        target = Target(concurrency=concurrency, min_tokens_per_s=min_tokens_per_s)
        found = list(candidates(base, types, target, prices(price), split(kv_dtype, "--kv-dtype", str)))
        write(answer(found, target), format, output)
