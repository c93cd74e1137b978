"""The command line: one verb per module of `kvplan.commands`, imported only when it is asked for.

A `KvplanError` is one line on stderr and exit 1; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from kvplan import __version__
from kvplan.errors import KvplanError

if TYPE_CHECKING:
    from collections.abc import Sequence


_SHARED = {"options", "progress", "scenario"}


def verbs() -> list[str]:
    """Module names of `kvplan.commands` that hold a verb; `_SHARED` are helpers, `import_` is the verb `import`."""
    modules = {p.name.partition(".")[0] for p in (Path(__file__).parent / "commands").iterdir()}
    return sorted(m.rstrip("_") for m in modules if not m.startswith("_") and m not in _SHARED)


class Verbs(TyperGroup):
    """A group whose commands are found on disk, so that starting one verb does not pay for the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs."""
        return verbs()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the verb's module and build its command; None for a verb that does not exist."""
        if cmd_name not in verbs():
            return None
        module = "import_" if cmd_name == "import" else cmd_name
        single = typer.Typer(add_completion=False)
        import_module(f"kvplan.commands.{module}").register(single)
        command = typer.main.get_command(single)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kvplan {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Plan the KV cache of LLM serving: bytes per token, sessions per GPU, speed, and proof on your own hardware."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` defaults to the process's arguments."""
    try:
        app(list(argv) if argv is not None else None)
    except KvplanError as error:
        typer.echo(f"kvplan: {' '.join(str(error).split())}", err=True)
        sys.exit(1)
