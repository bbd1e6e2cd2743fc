"""Results of a search: its trials, the best of them, and their scores on fresh seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.store import SearchFolder, Store
from ablate.store.documents import SearchDocument, TrialRecord
from reports.findings.fresh import Fresh, read_fresh
from reports.reading.documents import ReportError
from reports.wording.tables import Table


@dataclass(frozen=True)
class SearchSummary:
    """A search, and how the best of it did on fresh seeds."""

    document: SearchDocument
    fresh: tuple[Fresh, ...]

    @property
    def objectives(self) -> Mapping[str, str]:
        """Direction by name."""
        return self.document.objectives

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        return self.document.trials

    @cached_property
    def scored(self) -> tuple[TrialRecord, ...]:
        """Trials that reached the whole budget without diverging."""
        return tuple(trial for trial in self.trials if trial.is_scored)

    @property
    def best(self) -> tuple[TrialRecord, ...]:
        return tuple(trial for trial in self.trials if trial.best)

    @property
    def states(self) -> Counter[str]:
        return Counter(trial.state for trial in self.trials)

    @property
    def diverged(self) -> int:
        return sum(trial.values is not None and not trial.is_scored for trial in self.trials)


def read_search(folder: Path) -> SearchSummary:
    """Raises ReportError where there is no search."""
    document = SearchFolder(folder).read()
    if document is None:
        raise ReportError(f"{folder} is not the folder of a search: it has no search.json")
    objectives, base = list(document.objectives), document.base
    searched = {f"trial_{trial.number}": trial.values for trial in document.trials}
    searched[base.name] = base.values
    scores = {
        arm: {name: value for name, value in zip(objectives, values, strict=True) if value is not None}
        for arm, values in searched.items()
        if values and None not in values
    }
    fresh = read_fresh(Store.of_study(folder), document.name, document.scale, scores, objectives)
    return SearchSummary(document, fresh)


def best_table(search: SearchSummary) -> Table:
    """The best trial, or the front in the order of the first objective."""
    return _table(search, search.best)


def trials_table(search: SearchSummary) -> Table:
    """Every trial, the best first."""
    return _table(search, search.trials)


def _table(search: SearchSummary, trials: Sequence[TrialRecord]) -> Table:
    """The best first, then by the first objective; without a score last."""
    maximized = next(iter(search.objectives.values()), "minimize") == "maximize"

    def key(trial: TrialRecord) -> tuple[bool, bool, float, int]:
        first = trial.scores[0] if trial.is_scored else math.inf
        return not trial.best, not trial.is_scored, -first if maximized else first, trial.number

    return Table(_header(search), tuple(_row(search, trial) for trial in sorted(trials, key=key)), labels=2)


def _header(search: SearchSummary) -> tuple[str, ...]:
    return ("trial", "state", *search.objectives, *search.document.space)


def _row(search: SearchSummary, trial: TrialRecord) -> tuple[str, ...]:
    values = trial.values or (None,) * len(search.objectives)
    settings = (trial.settings.get(path, "–") for path in search.document.space)
    state = "diverged" if trial.values is not None and not trial.is_scored else trial.state
    return (str(trial.number), state, *map(_number, values), *(setting_text(value) for value in settings))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.5g}"


def setting_text(value: Any) -> str:
    """A value, short."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
