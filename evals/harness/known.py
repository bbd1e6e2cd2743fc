"""Names of the existing tasks; lm-eval is not loaded for those that ship with the project."""

from __future__ import annotations

from pathlib import Path

from zoo.errors import did_you_mean

TASK_SUFFIXES = {".yaml", ".yml", ".py", ".json", ".jsonl"}
"""File types of a task's definition."""

DATA_SUFFIXES = (".parquet", ".jsonl", ".json", ".jsonl.gz", ".json.gz")
"""File types of a task's local data."""

TASK_FOLDER = Path(__file__).parent / "tasks"
SHIPPED = tuple(sorted(path.stem for path in TASK_FOLDER.glob("*.yaml")))


def near(name: str) -> str:
    """`" (did you mean 'x'?)"`, with x the most similar existing task; an empty string if there is none."""
    if ours := did_you_mean(name, SHIPPED):
        return ours
    from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

    return catalogue.near(name)
