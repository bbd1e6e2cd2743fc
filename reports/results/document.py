"""`studies/results/<study>@<scale>.json`: a study's result as data, small enough to be committed.

Numbers have five significant digits. An end of an interval is null where it is not known, or where there is none.
Named parts of a model link a result to variants of the zoo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, Literal, TypeAlias

from pydantic import Field, JsonValue

from ablate.store.documents import Part, StudyClaim
from ablate.store.documents._document import is_none
from reports.verdicts import Outcome, Verdict

Range: TypeAlias = tuple[float, float]


def is_empty(value: object) -> bool:
    """`Field(exclude_if=is_empty)` leaves an empty list or map out of the file."""
    return not value


class RecordedInterval(Part):
    """A mean with its interval, and the corrected p-value where it was tested."""

    mean: float
    low: float | None
    high: float | None
    p: float | None = Field(default=None, exclude_if=is_none)


class RecordedCost(Part):
    """A cost as a ratio to the baseline's."""

    label: str
    """`decoding time per token at 512 tokens, batch 1`."""
    ratio: float
    low: float | None
    high: float | None


class RecordedTrial(Part):
    """A learning rate that tuning tried, and the loss of every tuning seed; null where it diverged."""

    rate: float
    losses: tuple[float | None, ...]


class RecordedCurve(Part):
    """The mean validation loss by step, at most forty points."""

    steps: tuple[int, ...] = ()
    loss: tuple[float, ...] = ()


class RecordedArm(Part):
    """One arm over its seeds."""

    name: str
    edits: dict[str, JsonValue]
    """Edits of the base by path, those that tuning chose among them."""
    parts: tuple[str, ...] = ()
    """Parts of its model and training that not every arm has: `norm_placement=post`."""
    verdict: Verdict
    loss: RecordedInterval | None
    difference: RecordedInterval | None
    """Paired difference from the baseline."""
    detectable: float | None
    """The smallest difference that would have been found with 80 % probability."""
    rate: float | None
    """Learning rate."""
    seeds: dict[str, float]
    """Loss by seed, of those that trained."""
    stalled: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    tuning: tuple[RecordedTrial, ...] = ()
    curve: RecordedCurve = RecordedCurve()
    costs: dict[str, RecordedCost] = Field(default={})


class RecordedEffect(Part):
    """Effect of a factor of a design, or of an interaction."""

    name: str
    verdict: Verdict
    difference: RecordedInterval | None
    detectable: float | None


class RecordedContrast(Part):
    """A comparison of two arms, neither of which is the baseline."""

    arm: str
    against: str
    difference: RecordedInterval | None
    verdict: str


class RecordedRung(Part):
    """Paired differences from the baseline at another rung of a ladder, by arm; their intervals are uncorrected."""

    name: str
    axis: Literal["size", "length"]
    parameters: Range
    tokens_per_parameter: Range
    differences: dict[str, RecordedInterval]


class RecordedClaim(StudyClaim):
    """A claim as the study states it, and its outcome."""

    outcome: Outcome
    effect: RecordedInterval | None
    """The measured effect: a difference, or a ratio of costs."""
    seen: float | None
    """The smallest effect that would have been found with 80 % probability."""
    reason: str
    """What decided."""


class RecordedSetting(Part):
    """Conditions of a result: the lowest and the highest over its arms."""

    parameters: Range
    """Without embeddings."""
    tokens_per_parameter: Range
    context: int | None
    matched: str
    rates: str
    seeds: int
    data: str
    """Sources of the data, or names of synthetic tasks."""
    vocabularies: tuple[int, ...] = Field(default=(), exclude_if=is_empty)
    """Numbers of token ids; empty in files from before."""


class RecordedResult(Part):
    """The whole file."""

    format: Literal[1] = 1
    study: str
    scale: str
    question: str
    citation: str | None
    created: str
    recorded: str
    """Day on which the file was written."""
    commit: str | None
    machine: str
    threads: str
    torch: str
    command: str
    notes: tuple[str, ...] = ()
    setting: RecordedSetting
    answer: str
    qualifiers: tuple[str, ...]
    baseline: str
    unit: str
    arms: tuple[RecordedArm, ...]
    effects: tuple[RecordedEffect, ...] = ()
    contrasts: tuple[RecordedContrast, ...] = ()
    rungs: tuple[RecordedRung, ...] = Field(default=(), exclude_if=is_empty)
    claims: tuple[RecordedClaim, ...] = ()

    @property
    def name(self) -> str:
        """`norm_placement@cpu`, also the name of its file."""
        return f"{self.study}@{self.scale}"

    def arm(self, name: str) -> RecordedArm | None:
        return next((arm for arm in self.arms if arm.name == name), None)


Plain: TypeAlias = Mapping[str, Any]
"""Edits by path, or a document as JSON has it."""

NAMING = ("kind", "source")
"""Keys whose value names the part around them."""


def parts_of(data: Plain) -> frozenset[str]:
    """Every part in plain data, with full or dotted keys: words by the setting that takes them, and maps by name."""
    return frozenset(_walk("", data))


def _walk(name: str, value: Any) -> Iterator[str]:
    match value:
        case str():
            yield f"{name}={value}"
        case list() | tuple():
            for each in value:
                yield from _walk(name, each)
        case Mapping():
            kind = next((value[key] for key in NAMING if isinstance(value.get(key), str)), None)
            if name:
                yield f"{name}={kind}" if kind else name
            for key, inside in value.items():
                parent, _, last = key.rpartition(".")
                if last not in NAMING:
                    yield from _walk(last, inside)
                elif parent:
                    yield from _walk(parent.rpartition(".")[2], inside)


def own_parts(arms: Mapping[str, Plain]) -> dict[str, tuple[str, ...]]:
    """The parts of each arm that not all arms have. Arms of which nothing is known have none."""
    found = {name: parts_of(data) for name, data in arms.items() if data}
    common = reduce(frozenset.__and__, found.values()) if found else frozenset()
    return {name: tuple(sorted(found.get(name, common) - common)) for name in arms}
