"""`kvplan validate`: real MLA decode on this machine, against the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.commands.options import MODEL_HELP, Format, Output, contexts


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def validate(
        model: Annotated[str, typer.Argument(help=f"A model with MLA. {MODEL_HELP}")] = "deepseek-v3",
        device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
        quick: Annotated[bool, typer.Option("--quick", help="End within 20 s instead of 90 s.")] = False,
        full: Annotated[bool, typer.Option("--full", help="Take up to 5 minutes.")] = False,
        batch: Annotated[int | None, typer.Option(min=1, help="Sessions of the memory checks.")] = None,
        context: Annotated[str | None, typer.Option(help="Tokens of each session of the memory checks.")] = None,
        ranks: Annotated[bool, typer.Option("--ranks", help="Check several ranks; run under torchrun.")] = False,
        save: Annotated[Path | None, typer.Option(help="Keep machine, versions and all samples in this file.")] = None,
        compare: Annotated[Path | None, typer.Option(help="Set an earlier run (from --save) beside this one.")] = None,
        plot: Annotated[
            Path | None, typer.Option(help="Write the roofline with the measured points (.svg, .png, .pdf).")
        ] = None,
        check: Annotated[bool, typer.Option("--check", help="Exit 3 if something does not hold.")] = False,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """Run MLA decode on this machine: numbers, bytes and seconds against what kvplan predicts.

        Example: kvplan validate --quick
        """
        from kvplan.catalog import load_model
        from kvplan.commands.progress import tracked
        from kvplan.documents.validate import deliver
        from kvplan.validate import require_torch
        from kvplan.validate.result import load

        require_torch()
        from kvplan.validate.effort import effort
        from kvplan.validate.ranks import RankSession
        from kvplan.validate.run import Session

        earlier = load(compare) if compare else None
        spec, tokens = load_model(model), contexts(context)[0] if context else None
        session = RankSession(spec, device) if ranks else Session.plan(spec, device, effort(quick, full), batch, tokens)
        for _ in tracked(session.steps(), session.expected_steps, "validate"):
            pass
        result = session.result()
        if result is not None:
            deliver(result, earlier, save=save, plot=plot, format=format, output=output)
        if check and result is not None and not result.ok:
            raise typer.Exit(3)
