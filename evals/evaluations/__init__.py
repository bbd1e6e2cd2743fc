"""Evaluations: one file each, without another registry.

Every file here that does not begin with `_` is an evaluation: it defines one `EvaluationSpec`, whose settings are in
the `evals:` section of a study under the file's name. A file of the same name in `reports/page/evaluations` shows its
results. docs/adding_an_evaluation.md is a guide. An evaluation that needs a folder of its own lies in the subfolder
`evaluations` of a folder beside this one, and is deleted with it.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from evals.found import Found
from evals.subject import Conditions, Data, HeldOutText, Need, Subject, causal_models
from zoo.settings.axis import Spec
from zoo.settings.registry import member, members, only_class


class EvaluationSpec(Spec, ABC):
    """One evaluation. Its fields are its settings; the first sentence of its docstring is its help."""

    reads: ClassVar[type[Data]] = HeldOutText
    """Kind of data on which models are evaluated."""
    needs: ClassVar[tuple[Need, ...]] = (causal_models,)
    """Further requirements (see `evals.subject`)."""
    by_default: ClassVar[bool] = False
    """Whether all models with such data get this evaluation, unless a study says otherwise."""
    inline: ClassVar[bool] = False
    """Whether its settings are keys of the section itself; the key of its own name, if empty, then requests nothing."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Modules that take seconds to load and that `run` imports late. Workers load them before training, since they
    count towards the memory of a process."""

    @abstractmethod
    def run(self, subject: Subject, data: Any) -> Found:
        """Evaluate a model on data of the kind that it `reads`. The same arguments give the same numbers."""

    def scored(self) -> tuple[str, ...]:
        """Tasks that get scores, as far as they are known in advance: a search may have these as objectives."""
        return ()

    def located(self, folder: Path) -> Self:
        """Copy with absolute paths; relative ones start from `folder`."""
        return self

    def content(self) -> str | None:
        """Digest of the files that it reads, None without any; other contents make it another evaluation."""
        return None

    def code(self) -> tuple[str, ...]:
        """Files and folders named in its settings that can run code."""
        return ()

    def problems(self, conditions: Conditions) -> Iterator[tuple[str, str]]:
        """(setting, problem) of settings that can only be checked against the data."""
        yield from ()

    @classmethod
    def unmet(cls, conditions: Conditions) -> str | None:
        """First need that conditions do not meet; None if they meet all."""
        if cls.reads is not conditions.data:
            return f"needs {cls.reads.kind}, but {conditions.source} {cls.reads.absent}"
        return next((reason for need in cls.needs if (reason := need(conditions))), None)


def evaluations() -> dict[str, type[EvaluationSpec]]:
    """Every evaluation by name, in alphabetical order."""
    beside = [
        f"evals.{path.parent.name}.evaluations" for path in sorted(Path(__file__).parents[1].glob("*/evaluations"))
    ]
    named = {name: member(__name__, name, *beside) for name in members(__name__, *beside)}
    return {name: only_class(module, EvaluationSpec) for name, module in named.items()}  # type: ignore[type-abstract]


def load_imports() -> None:
    """Load the modules that evaluations would import late."""
    for each in evaluations().values():
        for name in each.imports:
            importlib.import_module(name)
