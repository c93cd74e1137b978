"""Who may import whom, what start-up may load, and that every room holds what it promises: one table, one test each."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvplan

PACKAGE = Path(kvplan.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

TIERS: dict[str, int] = {
    # The floor: text and numbers.
    "errors": 0, "arith": 0, "__init__": 0,
    "units": 1, "files": 1, "plain": 1, "table": 1, "matrix": 1,
    "storage": 2, "diskcache": 2, "strict_yaml": 2, "specfile": 3,
    "weight_formats": 3,
    "cache": 3, "layers": 3,
    # The domain.
    "attention": 4, "mlp": 4, "parallel": 4, "gpu": 4, "decode_kernel": 4,
    "model": 5, "budget": 5,
    "weights": 6, "compare": 6,
    "engines": 7, "roofline": 7,
    "plan": 8,
    "sweep": 9, "remedies": 9, "sensitivity": 9, "charts": 9, "recommend": 9, "checks": 9,
    "overheads": 6, "logs": 9, "identify": 10, "causes": 10, "reconcile": 11,
    # The borders.
    "gpu_local": 5, "hf": 6, "catalog": 7, "validate": 9,
    # What people see.
    "formats": 3, "documents": 12, "commands": 13, "cli": 14, "__main__": 15,
}  # fmt: skip
"""A module may import from lower tiers, and from its own room. Imports for type checking alone are free."""

HEAVY = {"numpy", "torch", "pydantic", "rich", "yaml", "triton", "matplotlib", "typer"}
ALLOWED: dict[str, set[str]] = {
    "typer": {"cli", "commands"},
    "rich": {"formats", "commands"},
    "yaml": {"strict_yaml"},
    "pydantic": {"specfile"},
    "torch": {"validate", "gpu_local"},
    "triton": {"validate"},
    "matplotlib": {"formats", "validate"},
    "numpy": {"arith", "sweep", "recommend", "validate", "commands", "engines"},
}


def room(path: Path) -> str:
    """The top-level name of a module inside the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> list[str]:
    """Dotted names that a module imports, those under `if TYPE_CHECKING` left out."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(n for part in node.body for n in ast.walk(part))
    names: list[str] = []
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_downwards(path: Path) -> None:
    """No module imports from its own tier or above, outside its room; heavy libraries stay in their rooms."""
    here = room(path)
    assert here in TIERS, f"{here} stands in no tier"
    for name in imports(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] == "kvplan" and len(parts) > 1 and parts[1] in TIERS and parts[1] != here:
            assert TIERS[parts[1]] < TIERS[here], f"{here} imports {name}"
        if parts[0] in ALLOWED:
            assert here in ALLOWED[parts[0]], f"{here} imports {parts[0]}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_engines_and_attention_do_not_know_each_other(path: Path) -> None:
    """Engines import only their own helpers, which begin with an underscore, and the shared words."""
    if room(path) != "engines" or path.name.startswith("_"):
        return
    for name in imports(ast.parse(path.read_text())):
        if name.startswith("kvplan.engines."):
            module = name.split(".")[2]
            own = path.relative_to(PACKAGE).parts[1].removesuffix(".py")
            assert module in {"base", own} or module.startswith("_"), f"{path.name} imports {name}"


def test_no_input_is_asserted_and_nothing_is_swallowed() -> None:
    """Input is checked with errors that say what is wrong; `except Exception` hides bugs."""
    for path in MODULES:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Assert), f"{path}: assert"
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None and "Exception" not in ast.unparse(node.type).split("."), (
                    f"{path}: bare except"
                )


def loaded_by(statement: str) -> set[str]:
    """Heavy libraries in memory after a statement in a fresh interpreter."""
    code = f"import sys\n{statement}\nprint(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_heavy() -> None:
    """`import kvplan.cli` must not cost what only some verbs need."""
    assert loaded_by("import kvplan.cli") == {"typer"}


def test_that_test_can_fail() -> None:
    """It sees a heavy import when there is one."""
    assert "numpy" in loaded_by("import kvplan.cli, numpy")


def test_every_engine_exports_the_same_name() -> None:
    """`ENGINE`, with a name, a default version and the methods of the protocol."""
    from kvplan.engines import engine, engine_names

    for name in engine_names():
        found = engine(name)
        assert found.name.replace("-", "_").replace(".", "_") == name
        assert all(callable(getattr(found, m)) for m in ("layout", "budget", "flags"))
        assert found.default_version
        assert found.gpu_axis in {"tp", "pp"}


def test_every_verb_registers_one_command() -> None:
    """And the command has the module's name and a help text with an example."""
    from kvplan.cli import Verbs, verbs

    group = Verbs(name="kvplan")
    for verb in verbs():
        command = group.get_command(None, verb)
        assert command.name == verb
        assert "Example" in (command.help or ""), verb


def test_every_format_renders() -> None:
    """Each module of kvplan.formats that is a format exports `render`."""
    from kvplan.formats import names

    assert {"table", "markdown", "html", "json", "csv"} <= set(names())
