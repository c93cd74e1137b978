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
        log: Annotated[str | None, typer.Argument(help="A start-up log (.gz too), or - for stdin.", show_default=False)] = None,
        model: Annotated[str | None, typer.Argument(help="The model, where the log does not say.", show_default=False)] = None,
        url: Annotated[str | None, typer.Option(help="Prometheus metrics of a running server.")] = None,
        gpu: Annotated[str | None, typer.Option(help="The GPU, where the log does not say.")] = None,
        tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallelism, where the log does not say.")] = None,
        context: Annotated[str | None, typer.Option(help="Maximum length, where the log does not say.")] = None,
        engine_version: Annotated[str | None, typer.Option(help="Engine version, where the log does not say.")] = None,
        calibrate: Annotated[
            Path | None, typer.Option(help="Write this site's measured overheads for kvplan fit --overheads.")
        ] = None,
        check: Annotated[bool, typer.Option("--check", help="Exit 3 if a figure differs without a known cause.")] = False,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """Hold what an engine printed against the prediction: weights, pool, blocks, tokens, concurrency.

        Example: kvplan reconcile vllm.log --calibrate site.yaml
        """
        from kvplan.documents.reconcile import answer
        from kvplan.formats import write
        from kvplan.identify import gpu_of, model_of
        from kvplan.logs import fetch_metrics, read_log
        from kvplan.overheads import write_overheads
        from kvplan.reconcile import measured_overheads, reconcile, scenario_of

        if (log is None) == (url is None):
            raise typer.BadParameter("give a LOG or --url, one of the two")
        observed = fetch_metrics(url) if url else read_log(str(log))
        device, note = gpu_of(observed, gpu)
        unsaid = {"tp": tp, "context": contexts(context)[0] if context else None, "version": engine_version}
        found = reconcile(observed, scenario_of(observed, model_of(observed, model), device, unsaid))
        if calibrate:
            write_overheads(calibrate, observed.source, measured_overheads(observed))
        write(answer(observed, found, [note] if note else []), format, output)
        if check and any(c.cause == "unexplained" for c in found.comparisons):
            raise typer.Exit(3)
