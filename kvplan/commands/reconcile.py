"""`kvplan reconcile`: what a running engine said, against the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.commands.options import Format, Output, contexts


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def reconcile(
        log: Annotated[
            str | None, typer.Argument(help="A start-up log (.gz too), or - for stdin.", show_default=False)
        ] = None,
        model: Annotated[
            str | None, typer.Argument(help="The model, where the log does not say.", show_default=False)
        ] = None,
        url: Annotated[str | None, typer.Option(help="Metrics of a running server, instead of a log.")] = None,
        gpu: Annotated[str | None, typer.Option(help="The GPU, where the log does not say.")] = None,
        tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallelism, where the log does not say.")] = None,
        context: Annotated[str | None, typer.Option(help="Maximum length, where the log does not say.")] = None,
        engine_version: Annotated[str | None, typer.Option(help="Engine version, where the log does not say.")] = None,
        calibrate: Annotated[
            Path | None, typer.Option(help="Write this site's measured overheads for kvplan fit --overheads.")
        ] = None,
        check: Annotated[
            bool, typer.Option("--check", help="Exit 3 if a figure differs without a known cause.")
        ] = False,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """Hold what an engine printed when it started against the plan: memory, blocks, tokens, concurrency.

        Model, GPU, flags and version are read from the log where they stand. With --url the one argument is MODEL.

        Example: kvplan reconcile vllm.log --calibrate site.yaml

        Example: kubectl logs pod/sglang-0 | kvplan reconcile - deepseek-v3.2 --gpu h200 --tp 8

        Example: kvplan reconcile --url http://localhost:8000/metrics llama-3.1-8b --gpu h100
        """
        from kvplan.documents.reconcile import answer
        from kvplan.formats import write
        from kvplan.logs import fetch_metrics, read_log
        from kvplan.overheads import write_site
        from kvplan.reconcile import reconcile as hold
        from kvplan.reconcile.measured import site_of

        if (log is None and url is None) or (url is not None and model is not None):
            raise typer.BadParameter("give LOG, or --url and at most a MODEL")
        observed = fetch_metrics(url) if url else read_log(str(log))
        unsaid = {"tp": tp, "context": contexts(context)[0] if context else None, "version": engine_version}
        found = hold(observed, model=log if url else model, gpu=gpu, unsaid=unsaid)
        if calibrate:
            write_site(calibrate, site_of(observed, found.predicted))
        write(answer(found), format, output)
        if check and not found.ok:
            raise typer.Exit(3)
