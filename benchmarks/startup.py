"""CPU time of whole commands against a typer program that prints a constant: ratios of medians of paired runs.

    python benchmarks/startup.py [--runs 15]

Each round runs the small program and every command once, in turn, so that a slow moment of the machine hits all;
user and system time come from the operating system's accounting of each finished process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

MINIMAL = """
import typer
app = typer.Typer()
@app.command()
def main() -> None:
    typer.echo("70272")
app()
"""
COMMANDS = {
    "compare --format json": (["compare", "deepseek-v3", "--format", "json"], 1.5),
    "compare, terminal table": (["compare", "deepseek-v3"], 2.5),
    "fit": (["fit", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8", "--context", "8k", "--format", "json"], 2.5),
    "--help": (["--help"], None),
}


def cpu_s(argv: list[str], env: Mapping[str, str]) -> float:
    """User and system seconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print one line per command; 1 if a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        minimal = Path(folder) / "minimal.py"
        minimal.write_text(MINIMAL)
        programs = {"minimal": [sys.executable, str(minimal)]}
        programs |= {name: [sys.executable, "-m", "kvplan", *args] for name, (args, _) in COMMANDS.items()}
        # An installed package has its byte code; a source tree has none where the environment forbids to write it.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "byte_code")
        for argv in programs.values():
            cpu_s(argv, env)  # caches and byte code
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(runs):
            for name, argv in programs.items():
                times[name].append(cpu_s(argv, env))
    failed = 0
    base = statistics.median(times["minimal"])
    print(f"{'minimal typer program':<28} 1.00x   ({base * 1000:.0f} ms CPU, {runs} runs)")
    for name, (_, bound) in COMMANDS.items():
        ratio = statistics.median(times[name]) / base
        held = "" if bound is None else f"at most {bound}: {'holds' if ratio <= bound else 'DOES NOT HOLD'}"
        failed += bound is not None and ratio > bound
        print(f"kvplan {name:<21} {ratio:.2f}x   {held}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
