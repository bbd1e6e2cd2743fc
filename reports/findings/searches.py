"""Results of a search: its trials, the best of them, and their scores on fresh seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ablate.store import SearchFolder, Store
from ablate.store.documents import SearchDocument, TrialRecord
from reports.findings.fresh import Fresh, read_fresh
from reports.reading.documents import ReportError


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
