"""Which tasks exist, without loading lm-eval for those that ship with the project."""

from __future__ import annotations

from pathlib import Path

from zoo.errors import did_you_mean

TASK_SUFFIXES = {".yaml", ".yml", ".py", ".json", ".jsonl"}
"""File types that a task may consist of."""

DATA_SUFFIXES = (".parquet", ".jsonl", ".json", ".jsonl.gz", ".json.gz")
"""File types of a task's local data."""

TASK_FOLDER = Path(__file__).parent / "tasks"
SHIPPED = tuple(sorted(path.stem for path in TASK_FOLDER.glob("*.yaml")))


def near(name: str) -> str:
    """`" (did you mean 'x'?)"`, x being the nearest task that exists, or nothing."""
    if ours := did_you_mean(name, SHIPPED):
        return ours
    from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

    return catalogue.near(name)
