"""Names of the existing tasks; lm-eval is not loaded for those that ship with the project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from store.documents import TaskGroup
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


# Tasks that an evaluation asked for and skipped. No torch.


def skipped_lines(skipped: Mapping[str, str], groups: Mapping[str, TaskGroup]) -> Iterator[str]:
    """One line for each skipped task, with the reason; several skipped tasks of a group share one line."""
    left = dict(skipped)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1].missing)):  # the outer before the inner
        missing = [task for task in group.missing if task in left]
        if len(missing) > 1:
            size = len(missing) + len(group.tasks)
            yield f"{name}: {len(missing)} of {size} tasks are skipped; {missing[0]}: {left[missing[0]]}"
            left = {task: reason for task, reason in left.items() if task not in missing}
    yield from (f"{task} is skipped: {reason}" for task, reason in left.items())
