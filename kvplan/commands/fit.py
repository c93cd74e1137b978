"""`kvplan fit`: does it fit, and how many at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.commands.options import Format, Model, Output, Plot
from kvplan.commands.scenario import scenario_options


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    @scenario_options
    def fit(
        model: Model,
        read: Any,
        check: Annotated[bool, typer.Option("--check", help="Exit 3 if it does not fit.")] = False,
        plot: Plot = None,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """What the engine will allocate for MODEL on this GPU, line by line, and how many sessions run at once.

        Example: kvplan fit deepseek-r1 --gpu h200 --gpus 8 --context 8k
        """
        from kvplan.documents.fit import answer
        from kvplan.formats import write
        from kvplan.plan import plan

        scenario, lengths = read(model)
        answered = plan(scenario)
        if plot:
            from kvplan.charts import memory
            from kvplan.formats.plot import save

            save(memory([answered]), plot)
        write(answer(answered, lengths), format, output)
        if check and not answered.fits:
            raise typer.Exit(3)
