"""`kvplan fit`: does it fit, and how many at once."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.commands.options import Engine, Format, Gpu, KvDtype, Model, Output, contexts, engine_args, size
from kvplan.units import parse_bytes


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def fit(
        model: Model,
        gpu: Gpu,
        gpus: Annotated[int | None, typer.Option(min=1, help="GPUs in all (default: tp x pp x dp).")] = None,
        engine: Engine = "vllm",
        tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallelism (default: all GPUs).")] = None,
        pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
        dp: Annotated[int, typer.Option(min=1, help="Replicas with sessions of their own.")] = 1,
        dcp: Annotated[int, typer.Option(min=1, help="Decode context parallelism inside TP.")] = 1,
        ep: Annotated[int, typer.Option(min=1, help="Expert parallelism.")] = 1,
        context: Annotated[
            str | None, typer.Option(help="Maximum model length; more lengths after commas are tabled too.")
        ] = None,
        kv_dtype: KvDtype = "auto",
        gpu_memory_utilization: Annotated[
            float | None, typer.Option(min=0.0, max=1.0, help="The engine's memory fraction.")
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
        overheads: Annotated[str | None, typer.Option(help="Site file that `kvplan reconcile --calibrate` wrote.")] = None,
        check: Annotated[bool, typer.Option("--check", help="Exit 3 if it does not fit.")] = False,
        plot: Annotated[str | None, typer.Option(help="Write a plot of the budget (.svg, .png, .pdf).")] = None,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """What the engine will allocate for MODEL on this GPU, line by line, and how many sessions run at once.

        Example: kvplan fit deepseek-r1 --gpu h200 --gpus 8 --context 8k
        """
        from kvplan.catalog import load_gpu, load_model
        from kvplan.documents.fit import answer
        from kvplan.formats import write
        from kvplan.plan import Scenario, plan

        lengths = contexts(context) if context else ()
        given = {"weights": weights, "activation": activation, "non_torch": non_torch, "cuda_graphs": cuda_graphs}
        scenario = Scenario(
            model=load_model(model),
            gpu=load_gpu(gpu),
            gpus=gpus,
            engine=engine,
            tp=tp,
            pp=pp,
            dp=dp,
            dcp=dcp,
            ep=ep,
            context=lengths[0] if lengths else None,
            kv_dtype=kv_dtype,
            kv_pool_bytes=size(kv_pool, "--kv-pool") or kv_pool_bytes,
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
            engine_args=engine_args(engine_arg or ()),
            given_bytes={k: parse_bytes(v, where=f"--{k}") for k, v in given.items() if v},
        )
        answered = plan(scenario)
        write(answer(answered, lengths[1:]), format, output)
        if check and not answered.fits:
            raise typer.Exit(3)
