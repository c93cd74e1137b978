"""`kvplan sweep`: many scenarios in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.commands.options import Format, Output, Plot


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def sweep(
        file: Annotated[Path, typer.Argument(help="YAML: defaults, and scenarios or a grid.", show_default=False)],
        stream: Annotated[
            bool, typer.Option("--stream", help="Print each result as a line of JSON as soon as it is found.")
        ] = False,
        plot: Plot = None,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """Answer every scenario of FILE; one that fails carries its error and the rest still run.

        Example: kvplan sweep scenarios.yaml --format csv -o plans.csv
        """
        from kvplan.commands.progress import tracked
        from kvplan.documents.sweep import answer, chart, result_payload
        from kvplan.formats import write, write_lines
        from kvplan.sweep import read_scenarios, run

        rows = read_scenarios(file)
        found = tracked(run(rows), len(rows), "scenarios")
        if stream:
            write_lines(map(result_payload, found), output)
            return
        results = list(found)
        if plot:
            from kvplan.formats.plot import save

            save(chart(results), plot)
        write(answer(results), format, output)
