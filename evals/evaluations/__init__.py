"""Evaluations: a file each. Nothing else lists them.

Every file here that does not begin with `_` is an evaluation: it defines one `EvaluationSpec`, whose settings stand in
the `evals:` section of a study under the file's name. What it finds is shown by a file of the same name in
`reports/evaluations`. docs/adding_an_evaluation.md is a guide.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from evals.conditions import Conditions, Need, causal_models
from evals.found import Found
from evals.subject import Data, HeldOutText, Subject
from zoo.settings.axis import Spec
from zoo.settings.registry import member, members, only_class


class EvaluationSpec(Spec, ABC):
    """One evaluation. Its fields are its settings; the first sentence of its docstring is its help."""

    reads: ClassVar[type[Data]] = HeldOutText
    """Data that it is evaluated on."""
    needs: ClassVar[tuple[Need, ...]] = (causal_models,)
    """Further requirements (see `evals.conditions`)."""
    by_default: ClassVar[bool] = False
    """Whether it is part of every evaluation on such data, unless a study says otherwise."""
    inline: ClassVar[bool] = False
    """Whether its settings stand in the section itself: then that of its own name, where empty, asks for nothing."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Modules that take seconds to load, and that `run` imports itself. Workers load them before they train, since the
    memory of a process counts them."""

    @abstractmethod
    def run(self, subject: Subject, data: Any) -> Found:
        """Evaluate a model on data of the kind that it `reads`. The same arguments give the same numbers."""

    def scored(self) -> tuple[str, ...]:
        """The tasks that it gives scores of, as far as they are known before: a search may have these as objectives."""
        return ()

    def located(self, folder: Path) -> Self:
        """The same with absolute paths, which are relative to `folder`."""
        return self

    def content(self) -> str | None:
        """A digest of the files that it names: with others it is another evaluation."""
        return None

    def code(self) -> tuple[str, ...]:
        """Files and folders that it names and that can run code."""
        return ()

    def problems(self, conditions: Conditions) -> Iterator[tuple[str, str]]:
        """(setting, what is wrong with it), of what can only be known with the data."""
        yield from ()

    @classmethod
    def unmet(cls, conditions: Conditions) -> str | None:
        """The first of its needs that conditions do not meet."""
        if cls.reads is not conditions.data:
            return f"needs {cls.reads.kind}, and {conditions.source} {cls.reads.absent}"
        return next((reason for need in cls.needs if (reason := need(conditions))), None)


def evaluations() -> dict[str, type[EvaluationSpec]]:
    """Every evaluation by name, in alphabetical order."""
    named = {name: member(__name__, name) for name in members(__name__)}
    return {name: only_class(module, EvaluationSpec) for name, module in named.items()}  # type: ignore[type-abstract]


def load_imports() -> None:
    """Load what evaluations would import late."""
    for each in evaluations().values():
        for name in each.imports:
            importlib.import_module(name)
