"""lm-eval's tasks, and those that ship with the project (`evals/harness`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from evals.evaluations import EvaluationSpec
from evals.found import Found
from evals.harness.selection import TaskSelection, near
from evals.subject import Conditions, HeldOutText, Subject


class TasksSpec(TaskSelection, EvaluationSpec):
    """lm-eval tasks, by their names or the paths of task files."""

    by_default: ClassVar[bool] = True
    inline: ClassVar[bool] = True
    imports: ClassVar[tuple[str, ...]] = ("evals.harness.evaluate",)

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        from evals.harness.answers import bind  # noqa: PLC0415
        from evals.harness.evaluate import evaluate_tasks  # noqa: PLC0415 (lm-eval is slow to load)
        from evals.harness.lm import ZooLM  # noqa: PLC0415

        if subject.answers is not None:
            bind(subject.answers, subject.sums)
        lm = ZooLM(
            subject.model,
            data.conventions,
            context=subject.context,
            batch=subject.batch,
            seed=subject.seed,
            answers=subject.answers,
        )
        return evaluate_tasks(self, lm, data.documents())

    def scored(self) -> tuple[str, ...]:
        return self.tasks

    def located(self, folder: Path) -> Self:
        """Copy with absolute paths of folders, data, and tasks that are files."""
        tasks = tuple(str((folder / name).resolve()) if (folder / name).is_file() else name for name in self.tasks)
        include = tuple(_absolute(name, folder) for name in self.include)
        data = {name: _absolute(path, folder) for name, path in self.data.items()}
        return self.model_copy(update={"tasks": tasks, "include": include, "data": data})

    def code(self) -> tuple[str, ...]:
        return (*self.include, *(name for name in self.tasks if Path(name).is_file()))

    def problems(self, conditions: Conditions) -> Iterator[tuple[str, str]]:
        """Names of folders, files and tasks that do not exist or cannot be read."""
        for place, folder in enumerate(self.include):
            if not Path(folder).is_dir():
                yield f"include.{place}", f"there is no folder {folder}"
        for name, path in self.data.items():
            if not Path(path).exists():
                yield f"data.{name}", f"there is no file or folder {path}"
        for name in self.unknown():
            yield f"tasks.{self.tasks.index(name)}", f"unknown task '{name}'{near(name)}"
        for name, reason in self.unreadable().items():
            yield f"tasks.{self.tasks.index(name)}", f"{name} is not a task file of lm-eval: {reason}"
        for name in self.stray_data():
            yield f"data.{name}", "is not the name of an evaluated task or group"


def _absolute(name: str, folder: Path) -> str:
    return str((folder / Path(name).expanduser()).resolve())
