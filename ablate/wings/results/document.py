"""`studies/results/<study>@<scale>.json`: a study's result as data, small enough to be committed.

Numbers have five significant digits. An interval's end is null if it is unknown or infinite. Named parts of a model
link a result to variants of the zoo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, JsonValue

from reports.judge.verdicts import Outcome, Verdict
from store.documents import Caveat, Part, References, StudyClaim
from store.documents._document import is_none

if TYPE_CHECKING:
    from reports.judge.statistics.estimates import Estimate

from reports.judge.sentences import prefixed_range

Range: TypeAlias = tuple[float, float]


def is_empty(value: object) -> bool:
    """`Field(exclude_if=is_empty)` leaves an empty list or map out of the file."""
    return not value


class RecordedInterval(Part):
    """A mean with its interval, and the corrected p-value if it was tested."""

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
    """A learning rate that tuning tried, and the loss of each tuning seed; null for a seed that diverged."""

    rate: float
    losses: tuple[float | None, ...]


class RecordedCurve(Part):
    """Mean validation loss by step, at most 40 points."""

    steps: tuple[int, ...] = ()
    loss: tuple[float, ...] = ()


class RecordedArm(Part):
    """One arm over its seeds."""

    name: str
    edits: dict[str, JsonValue]
    """Edits of the base by path, including those chosen by tuning."""
    parts: tuple[str, ...] = ()
    """Parts of its model and training that some other arm lacks: `norm_placement=post`."""
    verdict: Verdict
    loss: RecordedInterval | None
    difference: RecordedInterval | None
    """Paired difference from the baseline."""
    effective_compute: RecordedInterval | None = Field(default=None, exclude_if=is_none)
    """The difference as a factor of compute, if the study has a ladder."""
    detectable: float | None
    """Smallest difference that would have been found with 80 % probability."""
    rate: float | None
    """Learning rate."""
    seeds: dict[str, float]
    """Loss by seed, for seeds that trained."""
    shared: dict[str, tuple[int, ...]] = Field(default={}, exclude_if=is_empty)
    """Those of its seeds that other studies trained, by study."""
    stalled: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    tuning: tuple[RecordedTrial, ...] = ()
    curve: RecordedCurve = RecordedCurve()
    costs: dict[str, RecordedCost] = Field(default={})
    references: References | None = Field(default=None, exclude_if=is_none)
    """Losses of simple models on its text; absent if they are those of the result."""


class RecordedEffect(Part):
    """Effect of a factor of a design, or of an interaction."""

    name: str
    verdict: Verdict
    difference: RecordedInterval | None
    detectable: float | None


class RecordedContrast(Part):
    """A comparison of two arms other than the baseline."""

    arm: str
    against: str
    difference: RecordedInterval | None
    verdict: str


class RecordedRung(Part):
    """Paired differences from the baseline by arm, at another rung (size or length) of a ladder. Intervals are
    uncorrected."""

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
    """Smallest effect that would have been found with 80 % probability."""
    reason: str
    """Reason for the outcome."""


class RecordedSetting(Part):
    """Conditions of a result; ranges are from the lowest to the highest value over its arms."""

    parameters: Range
    """Parameter counts without embeddings."""
    tokens_per_parameter: Range
    context: int | None
    matched: str
    rates: str
    seeds: int
    data: str
    """Sources of the data, or names of synthetic tasks, separated by commas."""
    vocabularies: tuple[int, ...] = Field(default=(), exclude_if=is_empty)
    """Vocabulary sizes in token ids; empty in files written before this field existed."""


class RecordedResult(Part):
    """A recorded result file."""

    format: Literal[1] = 1
    study: str
    scale: str
    question: str
    citation: str | None
    created: str
    recorded: str
    """Day (UTC) on which the file was written."""
    commit: str | None
    machine: str
    threads: str
    torch: str
    command: str
    notes: tuple[str, ...] = ()
    setting: RecordedSetting
    answer: str
    qualifiers: tuple[str, ...]
    caveats: tuple[Caveat, ...] = Field(default=(), exclude_if=is_empty)
    """What the result must not be read without, as its study states it."""
    baseline: str
    unit: str
    margin: float | None = Field(default=None, exclude_if=is_none)
    """Nats below which a difference counts as none, if the study states it."""
    arms: tuple[RecordedArm, ...]
    effects: tuple[RecordedEffect, ...] = ()
    contrasts: tuple[RecordedContrast, ...] = ()
    rungs: tuple[RecordedRung, ...] = Field(default=(), exclude_if=is_empty)
    claims: tuple[RecordedClaim, ...] = ()
    references: References | None = Field(default=None, exclude_if=is_none)
    """Losses of simple models on the baseline's text: n-gram models of as many tokens as a run reads. Absent for
    synthetic tasks, and in files written before this field existed."""
    references_whole: References | None = Field(default=None, exclude_if=is_none)
    """The same, with n-gram models of all training tokens."""

    @property
    def losses(self) -> dict[str, float]:
        """Mean loss of each arm that trained."""
        return {arm.name: arm.loss.mean for arm in self.arms if arm.loss is not None}

    @property
    def references_by_arm(self) -> dict[str, References]:
        """Losses of simple models on the text of each arm, as far as known."""
        known = {arm.name: arm.references or self.references for arm in self.arms}
        return {name: each for name, each in known.items() if each is not None}

    @property
    def standing(self) -> str:
        """Where the baseline stands among them: `between bigrams and trigrams`; empty if unknown."""
        loss = self.losses.get(self.baseline)
        return "" if loss is None or self.references is None else self.references.standing(loss)

    @property
    def name(self) -> str:
        """`norm_placement@cpu`, also the file's name without its suffix."""
        return f"{self.study}@{self.scale}"

    def arm(self, name: str) -> RecordedArm | None:
        return next((arm for arm in self.arms if arm.name == name), None)


def sharing_baselines(results: Sequence[RecordedResult]) -> list[list[RecordedResult]]:
    """Groups of results, of two or more, whose baselines are the same runs: equal losses on two seeds or more."""
    groups: list[list[RecordedResult]] = []
    for result in results:
        same = next((group for group in groups if _have_same_baseline(group[0], result)), None)
        if same is None:
            groups.append([result])
        else:
            same.append(result)
    return [group for group in groups if len(group) > 1]


def _have_same_baseline(*results: RecordedResult) -> bool:
    one, other = (found.seeds if (found := result.arm(result.baseline)) else {} for result in results)
    common = one.keys() & other.keys()
    return len(common) > 1 and all(one[seed] == other[seed] for seed in common)


def interval(value: Estimate | None, p: float | None = None) -> RecordedInterval | None:
    if value is None:
        return None
    return RecordedInterval(mean=value.mean, low=end(value.low), high=end(value.high), p=p)


def end(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def range_of(values: Sequence[float]) -> Range:
    return float(min(values)), float(max(values))


# Outcome of a claim at the size of the models that were tested.
#
# A result contradicts or confirms a claim only within the sizes of its source, a factor of `NEAR` either way. Beyond
# these, or if they are unknown, it agrees or differs at its own size: a finding, and no judgement of the source.

NEAR = 4.0
"""Factor between two model sizes up to which a result at one speaks about the other."""
BEYOND: dict[Outcome, Outcome] = {"holds": "agrees", "does not hold": "differs"}
"""Outcomes outside the sizes of the source, by the outcome within them."""


def is_near(parameters: Sequence[float], sizes: Sequence[float]) -> bool:
    """Whether two ranges of model sizes, given by any of their members, lie within a factor of `NEAR`."""
    return bool(sizes) and max(parameters) * NEAR >= min(sizes) and min(parameters) <= max(sizes) * NEAR


def outcome_at(found: Outcome, parameters: Sequence[float], sizes: Sequence[float]) -> Outcome:
    """The outcome at these sizes of our models. sizes: of the claim's source; empty if unknown.

    Outcomes recorded with other sizes, or without any, may be given too.
    """
    within = {beyond: near for near, beyond in BEYOND.items()}.get(found, found)
    return within if is_near(parameters, sizes) else BEYOND.get(within, within)


def distance(found: Outcome, parameters: Sequence[float], sizes: Sequence[float]) -> str:
    """` at 56 k parameters (published at 220 M)`, to follow *agrees* or *differs*; empty for other outcomes."""
    if found not in BEYOND.values():
        return ""
    published = f" (published at {prefixed_range(sizes)})" if sizes else ""
    return f" at {prefixed_range(parameters)} parameters{published}"
