"""`kvplan show`: what exists, with its sources."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.commands.options import Format, Output


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def show(
        what: Annotated[
            str, typer.Argument(help="models, gpus, engines, formats, a model or a GPU.", show_default=False)
        ],
        format: Format = None,
        output: Output = None,
    ) -> None:
        """List what kvplan knows, or one model or GPU with the source of each figure.

        Example: kvplan show h200
        """
        from kvplan.documents.show import answer
        from kvplan.formats import write

        write(answer(what), format, output)
