"""`kvplan check`: the serving checklist."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.commands.options import Format, Model, Output
from kvplan.commands.scenario import scenario_options


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    @scenario_options
    def check(
        model: Model,
        read: Any,
        check: Annotated[bool, typer.Option("--check", help="Exit 3 if an item fails.")] = False,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """Decide the serving checklist for MODEL on this GPU: kernels, pages, FP8, settings, positions, copies.

        Example: kvplan check deepseek-v3 --gpu h200 --gpus 8 --context 32k
        """
        from kvplan.checks import checklist
        from kvplan.documents.check import answer
        from kvplan.formats import write
        from kvplan.plan import plan

        planned = plan(read(model)[0])
        items = checklist(planned)
        write(answer(planned, items), format, output)
        if check and any(item.verdict == "fail" for item in items):
            raise typer.Exit(3)
