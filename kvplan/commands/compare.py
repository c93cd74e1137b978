"""`kvplan compare`: models side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.commands.options import Format, Models, Output, Plot, contexts, split, whole_numbers


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def compare(
        models: Models,
        context: Annotated[str, typer.Option(help="Contexts in tokens; k = 1024.")] = "4k,32k,128k",
        tp: Annotated[str, typer.Option(help="Tensor-parallel sizes.")] = "1,2,4,8",
        kv_dtype: Annotated[str, typer.Option(help="KV dtypes: bf16, fp8, fp8_ds_mla, 6bit, auto ...")] = "bf16",
        against: Annotated[
            str | None,
            typer.Option(help="The same layers as mha, mqa, gqa:N, mla; or a model to measure savings against."),
        ] = None,
        batch: Annotated[int, typer.Option(min=1, help="Sessions held at once.")] = 1,
        explain: Annotated[bool, typer.Option("--explain", help="Print the derivation term by term.")] = False,
        plot: Plot = None,
        format: Format = None,
        output: Output = None,
    ) -> None:
        """Bytes per token, per session and per rank of MODELS, side by side.

        Example: kvplan compare deepseek-v3 llama-3.1-70b --context 4k,128k --tp 1,8
        """
        from kvplan.catalog import load_model
        from kvplan.documents.compare import Question, answer, chart
        from kvplan.formats import write

        question = Question(
            specs=tuple(load_model(m) for m in dict.fromkeys(models)),
            contexts=contexts(context),
            tps=whole_numbers(tp, "--tp"),
            kv_dtypes=split(kv_dtype, "--kv-dtype", str),
            against=split(against, "--against", str) if against else (),
            batch=batch,
            explain=explain,
        )
        if plot:
            from kvplan.formats.plot import save

            save(chart(question), plot)
        write(answer(question), format, output)
