"""`searches/<name>-<scale>/search.json`: what a search found."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from ablate.store.documents._document import Document, JsonObject, JsonScalar, Part, Unit
from ablate.store.documents.study import SpentBudget

Values: TypeAlias = tuple[float | None, ...]
"""In the order of the objectives; null where training diverged."""


TrialState: TypeAlias = Literal["finished", "short", "pruned", "failed"]
"""`short` trials have not had the whole budget."""


class SearchBase(Part):
    """The study's base with the seeds of trials: what fresh seeds do to it was not chosen."""

    name: str
    """The baseline's."""
    runs: tuple[str, ...]
    """Digests of its runs."""
    values: Values | None
    """What it scored; null until a trial is promoted."""


class Choices(Part):
    """What a choice is drawn from."""

    choices: tuple[JsonScalar, ...]
    """In the order of the space."""


class Range(Part):
    """What a number is drawn from."""

    low: int | float
    """The least."""
    high: int | float
    """The most."""
    log: bool
    """Whether it is drawn evenly on a logarithmic scale."""
    step: int | float | None
    """Only multiples of this above the least, where it is given."""


class Distribution(Part):
    """What a parameter was drawn from, as optuna writes it."""

    name: str
    """optuna's class."""
    attributes: Choices | Range
    """Its arguments."""


class TrialRecord(Part):
    """One trial."""

    number: int
    """optuna's."""
    state: TrialState
    """`short` trials have not had the whole budget."""
    best: bool
    """Whether it is the best, or on the front."""
    settings: JsonObject
    """What it tried, by path."""
    params: dict[str, JsonScalar]
    """The same as optuna has it."""
    distributions: dict[str, Distribution]
    """What each of the parameters was drawn from."""
    values: Values | None
    """What it scored with the whole budget; null where it did not get there."""
    reached: tuple[Values, ...]
    """What it scored with each share of the budget that it had."""
    curve: dict[str, float]
    """Validation losses that the pruner was told, by step."""
    runs: tuple[str, ...]
    """Digests of its runs."""
    error: str | None
    """Why it failed."""

    @property
    def is_scored(self) -> bool:
        """Whether it reached the whole budget without diverging."""
        return self.values is not None and None not in self.values


class SearchDocument(Document):
    """A search at one scale."""

    name: str
    """The study's."""
    scale: str
    """`cpu`, `gpu` …"""
    path: str | None
    """The file that was run; null for a study that came from Python."""
    question: str
    """As the file asks it."""
    source: str
    """The file's text."""
    created: str
    """When it was written (ISO 8601)."""
    optuna_study: str
    """Its name in optuna's storage; ends in a digest of all that decides a score."""
    budget: SpentBudget
    """What a whole trial may spend."""
    space: dict[str, JsonObject]
    """What may vary, by path."""
    objectives: dict[str, Literal["minimize", "maximize"]]
    """Direction by name."""
    sampler: str
    """What proposes settings."""
    pruner: str | None
    """What ends trials early."""
    shares: tuple[Annotated[float, Unit("share")], ...]
    """Of the budget that trials have, from small to whole."""
    seeds: tuple[int, ...]
    """Of every trial."""
    constraints: tuple[str, ...]
    """What must hold."""
    base: SearchBase
    """What the search began from."""
    illegal: dict[str, int]
    """Refused proposals, by reason."""
    trials: tuple[TrialRecord, ...]
    """All that ended."""
