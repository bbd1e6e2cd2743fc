"""Settings that the harness reads: the tasks to evaluate, and their data.

lm-eval is not loaded for tasks that ship with the project.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from evals.option import Option, once, whole
from zoo.errors import did_you_mean
from zoo.settings.axis import Spec

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


def names(word: str) -> list[str]:
    """Names separated by commas, as in `a,b`."""
    return [name for name in word.split(",") if name]


def named_path(word: str) -> tuple[str, str]:
    name, _, path = word.partition("=")
    if not (name and path):
        raise ValueError("expected NAME=PATH")
    return name, path


def flat(values: Iterable[list[str]]) -> list[str]:
    return list(chain.from_iterable(values))


class TaskSelection(Spec):
    """Tasks by name or file, the data that they read, and the number of their items."""

    tasks: Annotated[tuple[str, ...], Option("TASK", names, flat)] = Field(
        default=("heldout_pairs", "heldout_text"), strict=False
    )
    """Names of lm-eval tasks and groups, or paths of task files; by default the project's own.

    Paths are relative to the study's file. Empty if only other evaluations are requested.
    """
    include: Annotated[tuple[str, ...], Option("DIR", str, list)] = Field(default=(), strict=False)
    """Folders with task files of your own, whose names may then be used in `tasks`. Relative to the study's file."""
    limit: Annotated[PositiveInt | None, Option("N", whole)] = None
    """Maximum number of items per task."""
    fewshot: Annotated[NonNegativeInt | None, Option("N", whole)] = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """Few-shot examples per item (default: the task's own number). Tasks defined as zero-shot stay zero-shot."""
    chat_template: Annotated[bool, Option(flag=True)] = Field(default=False, exclude_if=lambda value: not value)
    """Present tasks to imported models as conversations, in the chat template that came with the model."""
    data: Annotated[dict[str, str], Option("NAME=PATH", named_path, once)] = Field(
        default={}, exclude_if=lambda value: not value
    )
    """Read the data of a task or group from a file or folder (parquet, jsonl, json)."""

    def content(self) -> str | None:
        """sha256 over the files of the tasks that ship with the project, the user's task files with the files beside
        them, and local data; None without any.

        It ties scores to the content of tasks, not to their names.
        """
        files = {path for name in self.include for path in Path(name).rglob("*")}
        # Other files beside data, such as the hub client's notes of a download, are never read.
        files |= {
            path for name in self.data.values() for path in Path(name).rglob("*") if path.name.endswith(DATA_SUFFIXES)
        }
        files |= {Path(name) for name in self.data.values()}
        files |= {TASK_FOLDER / f"{name}.yaml" for name in self.tasks if name in SHIPPED}
        for name in self.tasks:
            if Path(name).is_file():
                beside = Path(name).parent.iterdir()
                files |= {path for path in beside if path.suffix in TASK_SUFFIXES and path.is_file()}
        kept = sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts)
        if not kept:
            return None
        digest = hashlib.sha256()
        for path in kept:
            digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def unknown(self) -> list[str]:
        """Tasks that nothing defines. lm-eval is loaded only for names that do not ship with the project."""
        others = [name for name in self.tasks if name not in SHIPPED and not Path(name).is_file()]
        if not others:
            return []
        from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

        known = catalogue.index(others, [Path(name) for name in self.include])
        return [name for name in others if name not in known]

    def unreadable(self) -> dict[str, str]:
        """Task files that lm-eval cannot read, with the reason. None of their code runs."""
        files = [name for name in self.tasks if Path(name).is_file()]
        found: dict[str, str] = {}
        if files:
            from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

            for name in files:
                try:
                    catalogue.from_file(Path(name))
                except ValueError as error:
                    found[name] = str(error)
        return found

    def stray_data(self) -> list[str]:
        """Names in `data` that are neither requested tasks or groups nor members of these."""
        left = set(self.data) - set(self.tasks)
        if not left:
            return []
        from evals.harness import catalogue  # noqa: PLC0415 (slow to load)

        known = catalogue.index(self.tasks, [TASK_FOLDER, *map(Path, self.include)])
        return sorted(left - set(catalogue.reached(self.tasks, known)))
