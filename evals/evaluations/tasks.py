"""lm-eval's tasks, and those that ship with the project (`evals/harness`)."""

from __future__ import annotations

from typing import ClassVar

from evals.found import Found
from evals.harness.selection import TaskSelection
from evals.subject import HeldOutText, Subject


class TasksSpec(TaskSelection):
    """lm-eval tasks, by their names or the paths of task files."""

    by_default: ClassVar[bool] = True
    inline: ClassVar[bool] = True
    imports: ClassVar[tuple[str, ...]] = ("evals.harness.evaluate",)

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
