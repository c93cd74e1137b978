"""`kvplan import`: a Hugging Face config.json becomes a model spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.commands.options import Format


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command(name="import")
    def import_(
        config: Annotated[
            Path, typer.Argument(help="A config.json, or the folder that holds one.", show_default=False)
        ],
        output: Annotated[Path, typer.Option("--output", "-o", help="The spec to write.", show_default=False)],
        format: Format = None,
    ) -> None:
        """Read CONFIG and write it as a YAML spec that a person can read and edit.

        Example: kvplan import config.json -o my-model.yaml
        """
        from kvplan.catalog import dump_model
        from kvplan.documents.show import model_document
        from kvplan.formats import write
        from kvplan.hf import import_config

        spec = import_config(config)
        dump_model(spec, output)
        write(model_document(spec, lead=f"Wrote {output}."), format, None)
