# The commands that CI runs; `just` runs them all.
default: test lint types

test *args:
    .venv/bin/pytest {{args}}

lint:
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .

types:
    .venv/bin/mypy

# Rewrite what is generated: model specs, docs/reference, docs/accuracy, sample output in README and docs.
generate:
    .venv/bin/python benchmarks/accuracy.py
    .venv/bin/python docs/generate.py

docs:
    .venv/bin/mkdocs build --strict
