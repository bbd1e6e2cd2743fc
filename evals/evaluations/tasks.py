"""lm-eval's tasks, and those that ship with the project (`evals/harness`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, NonNegativeInt, PositiveInt

from evals.conditions import Conditions
from evals.evaluations import EvaluationSpec
from evals.found import Found
from evals.harness.known import content_of_tasks, near, stray_data, unknown_tasks
from evals.option import Option, flat, named_path, names, once, whole
from evals.subject import HeldOutText, Subject


class TasksSpec(EvaluationSpec):
    """lm-eval tasks, by their names or the paths of task files."""

    by_default: ClassVar[bool] = True
    inline: ClassVar[bool] = True
    imports: ClassVar[tuple[str, ...]] = ("evals.harness.evaluate",)

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
    data: Annotated[dict[str, str], Option("NAME=PATH", named_path, once)] = Field(
        default={}, exclude_if=lambda value: not value
    )
    """Read the data of a task or group from a file or folder (parquet, jsonl, json)."""

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        from evals.harness.evaluate import evaluate_tasks  # noqa: PLC0415 (lm-eval is slow to load)
        from evals.harness.lm import ZooLM  # noqa: PLC0415

        lm = ZooLM(
            subject.model,
            data.tokenizer,
            eos=data.eos,
            context=subject.context,
            batch=subject.batch,
            seed=subject.seed,
            answers=subject.answers,
        )
        return evaluate_tasks(self, lm, data.documents())

    def scored(self) -> tuple[str, ...]:
        return self.tasks

    def located(self, folder: Path) -> Self:
        """Folders, data, and tasks that are files."""
        tasks = tuple(str((folder / name).resolve()) if (folder / name).is_file() else name for name in self.tasks)
        include = tuple(_absolute(name, folder) for name in self.include)
        data = {name: _absolute(path, folder) for name, path in self.data.items()}
        return self.model_copy(update={"tasks": tasks, "include": include, "data": data})

    def content(self) -> str | None:
        return content_of_tasks(self)

    def code(self) -> tuple[str, ...]:
        return (*self.include, *(name for name in self.tasks if Path(name).is_file()))

    def problems(self, conditions: Conditions) -> Iterator[tuple[str, str]]:
        """Names of folders, files and tasks that do not exist."""
        for place, folder in enumerate(self.include):
            if not Path(folder).is_dir():
                yield f"include.{place}", f"there is no folder {folder}"
        for name, path in self.data.items():
            if not Path(path).exists():
                yield f"data.{name}", f"there is no file or folder {path}"
        for name in unknown_tasks(self):
            yield f"tasks.{self.tasks.index(name)}", f"unknown task '{name}'{near(name)}"
        for name in stray_data(self):
            yield f"data.{name}", "is not the name of an evaluated task or group"


def _absolute(name: str, folder: Path) -> str:
    return str((folder / Path(name).expanduser()).resolve())
