"""Write what the documents contain of the program's own: sample output, tables, reference pages.

    python docs/generate.py            rewrite README.md and docs/
    python docs/generate.py --check    exit 1, naming the files, if anything would change

In a page, the lines `$ kvplan ...` and `$ cat FILE` of a ```console block are run in the repository's root and their
output put below them; between `<!-- python benchmarks/SCRIPT.py NAME -->` and `<!-- end -->` stands what that script
prints. Pages of docs/reference but json.md are written whole (`docs/reference_pages.py`). docs/accuracy.md is the work
of benchmarks/accuracy.py.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLES = re.compile(r"(<!-- python benchmarks/(\w+)\.py (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TERMINAL = {"COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb", "FORCE_COLOR": ""}
"""The screen on which all samples are shown."""
OTHERS_WORK = {"docs/accuracy.md"}


@contextlib.contextmanager
def setting(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(line: str) -> str:
    """What one `kvplan ...` or `cat FILE` line prints on a terminal, notes after the answer."""
    from kvplan.cli import main

    program, *argv = shlex.split(line)
    if program == "cat":
        return "\n".join((ROOT / name).read_text().rstrip() for name in argv)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(ROOT):
        try:
            main(argv)
        except SystemExit as done:
            if done.code not in {None, 0, 1, 3}:
                raise ValueError(f"`{line}` ended with {done.code}: {err.getvalue()}") from None
    return "\n".join(text.rstrip() for text in (out.getvalue() + err.getvalue()).splitlines())


def executed(block: re.Match[str]) -> str:
    """A console block with the output of its commands as it is now."""
    commands = [text[2:] for text in block[1].splitlines() if text.startswith("$ ")]
    shown = (f"$ {c}\n{run(c)}" if c.startswith(("kvplan ", "cat ")) else f"$ {c}" for c in commands)
    return "```console\n" + "\n\n".join(shown) + "\n```"


def tabled(block: re.Match[str]) -> str:
    """The place of a script's table with the table as it is now."""
    sections = import_module(f"benchmarks.{block[2]}").sections()
    return f"{block[1]}\n{sections[block[3]]()}\n\n{block[5]}"


def refreshed(text: str) -> str:
    """A page with everything in it that is generated."""
    return TABLES.sub(tabled, CONSOLE.sub(executed, text))


def pages() -> Iterator[tuple[str, str]]:
    """(path from the root, text) of every page, as it should be."""
    from docs import reference_pages

    yield from reference_pages.pages()
    whole = {path for path, _ in reference_pages.PAGES} | OTHERS_WORK
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if name not in whole:
            yield name, refreshed(path.read_text())


def stale() -> list[tuple[str, str]]:
    """Pages whose file is not there or says something else, with what they should say."""
    with tempfile.TemporaryDirectory() as cache, setting({**TERMINAL, "KVPLAN_CACHE_DIR": cache}):
        return [(n, t) for n, t in pages() if not (ROOT / n).is_file() or (ROOT / n).read_text() != t]


def main() -> int:
    """Rewrite or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if anything would change")
    check = parser.parse_args().check
    found = stale()
    for name, text in found:
        sys.stdout.write(f"{'stale' if check else 'wrote'}: {name}\n")
        if not check:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(text)
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
