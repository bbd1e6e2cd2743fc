"""`searches/<name>-<scale>/search.json`: the results of a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field

from store import Store, StoreError, jsonfile, replacing
from store.documents import Document, JsonObject, JsonScalar, Part, SpentBudget, Unit
from store.documents._document import Time, is_none
from store.folders import ReportedFolder
from store.paths import folder_name
from store.seals import SealedLog

Values: TypeAlias = tuple[float | None, ...]
"""Scores in the order of the objectives; null if training diverged."""


def finite(scores: Sequence[float]) -> Values:
    """Scores with null for those of a diverged training."""
    return tuple(score if math.isfinite(score) else None for score in scores)


TrialState: TypeAlias = Literal["finished", "short", "pruned", "failed"]
"""`short`: trained on less than the whole budget."""


class SearchBase(Part):
    """The base model with the trials' seeds: the control of the search."""

    name: str
    """Name of the baseline."""
    runs: tuple[str, ...]
    """Digests of its runs."""
    values: Values | None
    """Its scores; null until it is trained."""
    params: dict[str, JsonScalar] = Field(default={}, exclude_if=lambda params: not params)
    """Its value on every axis of the space that has it, as optuna's parameter. Absent in older stores."""


class Choices(Part):
    """Options of a categorical parameter."""

    choices: tuple[JsonScalar, ...]
    """Options in the order of the space."""


class Range(Part):
    """Range of a numeric parameter."""

    low: int | float
    """Lower bound."""
    high: int | float
    """Upper bound."""
    log: bool
    """Whether it is sampled uniformly on a logarithmic scale."""
    step: int | float | None
    """Spacing of the allowed values, from the lower bound; null if all values are allowed."""


class Distribution(Part):
    """Distribution of a parameter, as optuna writes it."""

    name: str
    """optuna's class."""
    attributes: Choices | Range
    """Its arguments."""


class TrialRecord(Part):
    """One trial."""

    number: int
    """optuna's trial number."""
    state: TrialState
    """How it ended; `short`: trained on less than the whole budget."""
    best: bool
    """Whether it is the best, or on the Pareto front."""
    settings: JsonObject
    """Settings by path."""
    params: dict[str, JsonScalar]
    """Settings as optuna's parameters."""
    distributions: dict[str, Distribution]
    """Distribution of each parameter."""
    values: Values | None
    """Scores at the whole budget, as means over the trials that repeat this one; null if it did not reach it."""
    reached: tuple[Values, ...]
    """Scores at each share of the budget that it reached."""
    curve: dict[str, float]
    """Validation losses reported to the pruner, by step."""
    runs: tuple[str, ...]
    """Digests of its runs."""
    error: str | None
    """Why the trial failed."""
    repeats: int | None = Field(default=None, exclude_if=is_none)
    """Number of the first scored trial with the same settings, to which this one adds seeds; absent for that one."""
    imported: bool = Field(default=False, exclude_if=lambda imported: not imported)
    """Whether its runs were in the store when the search began, so that it cost nothing."""
    beyond: dict[str, float] = Field(default={}, exclude_if=lambda beyond: not beyond)
    """Limits on measured quantities that it exceeds, with the relative excess; such a trial is never the best."""

    @property
    def is_scored(self) -> bool:
        """Whether it reached the whole budget without diverging."""
        return self.values is not None and None not in self.values

    @property
    def scores(self) -> tuple[float, ...]:
        """Scores in the order of the objectives, without nulls."""
        return tuple(value for value in self.values or () if value is not None)


class Confirmed(Part):
    """The base, or one of the best trials, with seeds that selected nothing."""

    arm: str
    """`trial_7`, or the baseline's name."""
    runs: tuple[str, ...]
    """Digests of its runs, one for each seed; seeds are the same for all arms."""
    values: tuple[Values, ...]
    """Scores of each run."""

    @classmethod
    def of(cls, arm: str, runs: tuple[str, ...], scores: Iterable[Sequence[float]]) -> Self:
        return cls(arm=arm, runs=runs, values=tuple(map(finite, scores)))


class SearchDocument(Document):
    """A search at one scale."""

    name: str
    """The study's name."""
    scale: str
    """`cpu`, `gpu` …"""
    path: str | None
    """The file that was run; null for a study that came from Python."""
    question: str
    """The question, as the file states it."""
    source: str
    """The file's text."""
    created: Time
    """Time of writing (ISO 8601)."""
    optuna_study: str
    """Name in optuna's storage; ends in a digest of everything that affects a score."""
    budget: SpentBudget
    """Whole budget of a trial."""
    space: dict[str, JsonObject]
    """Settings that may vary, by path."""
    objectives: dict[str, Literal["minimize", "maximize"]]
    """Direction of each objective, by name."""
    sampler: str
    """Sampler of settings."""
    pruner: str | None
    """Rule that stops trials early."""
    shares: tuple[Annotated[float, Unit("share")], ...]
    """Shares of the budget at which trials are run, ascending to 1."""
    seeds: tuple[int, ...]
    """Seeds of every trial."""
    constraints: tuple[str, ...]
    """Constraints on the settings."""
    base: SearchBase
    """The base model."""
    illegal: dict[str, int]
    """Counts of refused proposals, by reason."""
    trials: tuple[TrialRecord, ...]
    """All ended trials."""
    confirmed: tuple[Confirmed, ...] = Field(default=(), exclude_if=lambda confirmed: not confirmed)
    """The base and the best trials with fresh seeds, trained at the end; absent before, and in older stores."""
    leaders: tuple[JsonObject, ...] = Field(default=(), exclude_if=lambda leaders: not leaders)
    """Only in older stores, and not read: settings with more than one trial."""
    cost_shares: dict[str, dict[str, float]] = Field(default={}, exclude_if=lambda shares: not shares)
    """Only in older stores, and not read: shares of a cost's variance that settings explain."""
    cost_intervals: dict[str, dict[str, tuple[float, float]]] = Field(default={}, exclude_if=lambda found: not found)
    """Only in older stores, and not read: intervals of these shares."""
    journal: str | None = Field(default=None, exclude_if=is_none)
    """Seal of the last line of `journal.log` when this was written; absent if trials are in a database, and in older
    stores."""


class SearchFolder(ReportedFolder):
    """`searches/<name>-<scale>/`."""

    document_name = "search.json"

    @property
    def journal_path(self) -> Path:
        """optuna's trials, unless they are in a database."""
        return self.path / "journal.log"

    @property
    def journal(self) -> SealedLog:
        remedy = f"restore it, or remove {self.path} to search again: its runs are kept"
        return SealedLog(self.journal_path, self.path.name, remedy)

    def check_journal(self) -> None:
        """Raises StoreError if a line of the journal is damaged, or the journal lacks trials that the search's document
        shows."""
        document = self.read()
        if document is not None and document.journal is not None and self.journal.lacks(document.journal):
            raise StoreError(f"{self.journal_path} lacks trials that {self.document_path} shows: {self.journal.remedy}")
        for number, body in enumerate(self.journal.bodies(), start=1):
            self.journal.parsed(body, number)

    @property
    def journal_lock_path(self) -> Path:
        return self.path / "journal.lock"

    @property
    def asking_lock_path(self) -> Path:
        """Lock of the one command that asks for a trial."""
        return self.path / "asking.lock"

    @property
    def owners_dir(self) -> Path:
        """One file for each searching command, locked during the command's lifetime."""
        return self.path / "owners"

    def read(self) -> SearchDocument | None:
        return jsonfile.read(self.document_path, SearchDocument, "remove it, and run the search again")

    def write(self, search: SearchDocument) -> None:
        jsonfile.write(self.document_path, search)

    @contextmanager
    def table(self, kind: str) -> Iterator[Path]:
        """Temporary path that becomes the table of trials, as `csv` or `parquet`."""
        with replacing(self.path / f"trials.{kind}") as temporary:
            yield temporary


def search_folder(store: Store, name: str, scale: str) -> SearchFolder:
    return SearchFolder(store.root / "searches" / folder_name(name, scale))


def every_folder(store: Store) -> list[SearchFolder]:
    """Folders of searches, sorted, with results or without."""
    return [SearchFolder(path) for path in sorted(store.root.glob("searches/[!.]*/"))]


def searches(store: Store) -> list[SearchFolder]:
    """Folders of searches with results, sorted."""
    return [folder for folder in every_folder(store) if folder.exists]


def named(store: Store) -> Iterator[tuple[Path, str, str]]:
    """Folder, name and scale of every search."""
    yield from ((folder.path, each.name, each.scale) for folder in searches(store) if (each := folder.read()))
