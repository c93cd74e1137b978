"""Documents: what is generated is as the program says it now, everything is named, and every link leads somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

import kvplan
from docs import generate
from kvplan.attention import Attention
from kvplan.catalog import gpu_names
from kvplan.cli import app, verbs
from kvplan.engines import engine, engine_names
from kvplan.storage import FORMATS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SET_UP = (
    "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/kvplan compare deepseek-v3 llama-3.1-70b",
    "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e '.[dev]' && .venv/bin/pytest",
)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_what_is_generated_is_up_to_date() -> None:
    """`python docs/generate.py` would change nothing."""
    assert [page for page, _ in generate.stale()] == []


def test_a_sample_that_says_something_else_is_found() -> None:
    """The test above can fail: the output below a command is the program's, not the page's."""
    page = "Text.\n\n```console\n$ kvplan --version\nkvplan 99\n```\n"

    assert generate.refreshed(page) == f"Text.\n\n```console\n$ kvplan --version\nkvplan {kvplan.__version__}\n```\n"


def test_an_error_is_a_sample_too() -> None:
    """One line and exit 1, as a reader would see it; the rest of the block follows."""
    page = "```console\n$ kvplan compare deepseek-v33 --tp 1\n\n$ cat mkdocs.yml\n```\n"
    block = generate.refreshed(page)

    assert "\nkvplan: unknown model 'deepseek-v33'" in block
    assert "\nsite_name: kvplan\n" in block


def test_a_command_line_that_is_wrong_stops_the_generator() -> None:
    """A usage error must not end up in a page."""
    with pytest.raises(ValueError, match="ended with 2"):
        generate.refreshed("```console\n$ kvplan compare --no-such-option\n```\n")


def test_the_screen_of_the_reader_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples have the generator's width, and the environment is as before."""
    monkeypatch.setenv("COLUMNS", "40")
    with generate.setting(generate.TERMINAL):
        wide = generate.run("kvplan show formats")

    assert os.environ["COLUMNS"] == "40"
    assert 40 < max(map(len, wide.splitlines())) <= int(generate.TERMINAL["COLUMNS"])


def test_the_lines_that_set_up_are_there_as_they_must_be() -> None:
    """Each is a block of its own, so that it can be pasted whole."""
    blocks = SHELL.findall((ROOT / "README.md").read_text())

    assert [block for block in blocks if "venv" in block] == list(SET_UP)


def attention_kinds() -> list[str]:
    return [typing.get_type_hints(cls)["kind"].__args__[0] for cls in typing.get_args(Attention)]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("verb", [f"kvplan {verb}" for verb in verbs()]),
        ("engine", [engine(e).name for e in engine_names()]),
        ("attention kind", attention_kinds()),
        ("KV format", list(FORMATS)),
        ("GPU", gpu_names()),
        ("model", ["deepseek-v3", "llama-3.1-70b", "reference-mla"]),
    ],
)
def test_everything_is_named(what: str, names: list[str]) -> None:
    """A reader who searches for it finds it, written as code."""
    text = "\n".join(page.read_text() for page in PAGES)
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))

    assert [n for n in names if not re.search(rf"(?<![\w.-]){re.escape(n)}(?![\w-])", spans)] == []


@pytest.mark.parametrize("verb", verbs())
def test_every_option_of_a_verb_is_in_the_reference(verb: str) -> None:
    """What `--help` prints, found without asking how the page is made."""
    shown = CliRunner(env={"COLUMNS": "240", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, [verb, "--help"]).output
    page = (ROOT / "docs/reference/cli.md").read_text().partition(f"\n## kvplan {verb}\n")[2].partition("\n## ")[0]
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown)) - {"--help"}

    assert options
    assert sorted(option for option in options if option not in page) == []


def pasted_commands() -> list[str]:
    """Every kvplan line of a shell block, without its comment and what it is piped into."""
    blocks = (block for page in PAGES for block in SHELL.findall(page.read_text()))
    parts = (part.strip() for block in blocks for line in block.splitlines() for part in line.split("#")[0].split("|"))
    return sorted({part for part in parts if part.startswith("kvplan ")})


@pytest.mark.parametrize("line", pasted_commands())
def test_commands_to_paste_are_understood(line: str) -> None:
    """The verb exists and takes these arguments; nothing is run."""
    _, verb, *arguments = shlex.split(line)
    root: Any = typer.main.get_command(app)

    assert root.get_command(None, verb).make_context(verb, arguments).params


FIT = "--gpu l40s --context 8k"
ANSWERS = {
    "compare": "compare llama-3.1-8b deepseek-v2-lite --against mha",
    "fit": f"fit llama-3.1-8b {FIT}",
    "check": f"check llama-3.1-8b {FIT}",
    "recommend": "recommend llama-3.1-8b --concurrency 4 --context 8k --gpus-from l40s",
    "sweep": "sweep docs/scenarios.yaml",
    "reconcile": "reconcile tests/logs/captured/vllm-0.19.0-deepseek-v2-lite.log --gpu h100",
    "report": f"report llama-3.1-8b {FIT}",
}


def keys(answer: Any, depth: int = 3) -> set[str]:
    """Keys of an answer and of what it holds, so far down."""
    if isinstance(answer, list):
        return set().union(*(keys(part, depth) for part in answer[:1]))
    below = (keys(part, depth - 1) for part in answer.values()) if isinstance(answer, dict) and depth > 1 else ()
    return set(answer if isinstance(answer, dict) else ()).union(*below)


@pytest.mark.parametrize("verb", sorted(ANSWERS))
def test_the_keys_of_an_answer_are_explained(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program finds in JSON is on the page; of a report's plans, what fit has too."""
    monkeypatch.chdir(ROOT)
    answer = json.loads(CliRunner().invoke(app, [*ANSWERS[verb].split(), "--format", "json"]).stdout)
    page = (ROOT / "docs/reference/json.md").read_text()

    found = keys(answer, 2 if verb == "report" else 3) - set(map(str, engine_names()))

    assert sorted(key for key in found if f"`{key}`" not in page) == []


def headings(page: Path) -> set[str]:
    """Anchors of a page, as markdown processors make them of its headings."""
    texts = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in texts}


def links(page: Path) -> Iterator[str]:
    """Targets inside the repository."""
    text = INLINE_CODE.sub("", FENCED.sub("", page.read_text()))
    yield from (target for target in LINK.findall(text) if "://" not in target)


def is_dead(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    to = (page.parent / path).resolve() if path else page
    return not to.is_file() or bool(anchor and anchor not in headings(to))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist, and so do the headings that an anchor names."""
    assert [target for target in links(page) if is_dead(page, target)] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """The test above can fail, by a file and by an anchor; code is not taken for links."""
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](#a-b) [y](#c) [z](gone.md) `[no](code.md)`\n\n```\n[no](block.md)\n```\n")

    assert [target for target in links(page) if is_dead(page, target)] == ["#c", "gone.md"]


def site() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return settings


def in_navigation(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ():
        yield from in_navigation(part)


def test_the_site_shows_every_page_and_fetches_nothing() -> None:
    """Pages and navigation are the same set; no font comes from elsewhere."""
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}

    assert set(in_navigation(site()["nav"])) == pages
    assert site()["theme"]["font"] is False


def test_every_room_of_the_package_is_in_the_architecture() -> None:
    """A module or a folder that the page does not name is one that nobody can find."""
    package = Path(kvplan.__file__).parent
    rooms = {
        p.name.removesuffix(".py") for p in package.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()
    }
    page = (ROOT / "docs/architecture.md").read_text()

    assert sorted(r for r in rooms if not r.startswith("__") and f"`{r}`" not in page) == []
