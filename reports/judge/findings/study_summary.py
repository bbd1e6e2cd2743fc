"""Findings of a study: frozen dataclasses from which tables, figures and pages draw."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Self, TypeVar, get_args

import polars as pl

from reports.judge.findings.comparison import Comparison, Judgement, seeds_needed
from reports.judge.noise import Noise
from reports.judge.noise.moderated import Odd
from reports.judge.reading.collected import Collected, SectionReader
from reports.judge.reading.documents import NO_INPUTS, Inputs, TextReferences
from reports.judge.scores import ItemDifference
from reports.judge.statistics.estimates import Estimate, Interval
from reports.judge.verdicts import Verdict
from store.documents import JsonObject, LedgerRecord, LedgerTest, StudyArm, StudyDocument, StudyEffect

Shown = TypeVar("Shown", bound="SectionSummary")

RANKS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class EffectSummary:
    """Effect of one factor of a design, or of the interaction of two. In `judgement.comparison`, `difference` is the
    mean loss of one half of the runs minus that of the other half."""

    effect: StudyEffect
    judgement: Judgement

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def comparison(self) -> Comparison:
        return self.judgement.comparison


@dataclass(frozen=True)
class MeanScore:
    """One metric of one task, averaged over seeds; `stderr` and the 95 % interval cover items and seeds.

    `value` is None if a seed has none: a mean that leaves out an infinite perplexity would be too favourable.
    """

    task: str
    metric: str
    value: float | None
    stderr: float | None
    half_width: float | None
    higher_is_better: bool | None
    chance: float | None
    seeds: int


@dataclass(frozen=True)
class ArmSummary:
    """One arm over the `seeds` that trained. `comparison` is None for the baseline.

    Text has bits per byte. Synthetic tasks have an accuracy and, if the lowest possible loss is known, an `excess`
    above it in nats per token.
    """

    planned: StudyArm
    seeds: tuple[int, ...]
    stalled: tuple[int, ...]
    diverged: tuple[int, ...]
    missing: tuple[int, ...]
    means: Mapping[str, Estimate]
    """Means over seeds by column: numeric columns of the frame of runs with a value for some seed, and `excess`."""
    training_speed: float | None
    """Tokens per second, measured in alternation with the other arms."""
    shared: Mapping[str, tuple[int, ...]]
    """Seeds of the same arm in other studies of the store, which its mean loss includes."""
    outlier: Odd | None
    """A seed far from the others."""
    train_seconds: float | None
    """Mean time that its runs took."""
    scores: tuple[MeanScore, ...]
    items: tuple[ItemDifference, ...]
    comparison: Comparison | None
    verdict: Verdict
    withheld: str | None
    """Reason for a missing verdict."""

    @property
    def name(self) -> str:
        return self.planned.name

    @cached_property
    def edits(self) -> tuple[tuple[str, str], ...]:
        """The arm's own edits, by path, as JSON."""
        return as_json(self.planned.edits)

    @property
    def loss(self) -> Estimate | None:
        return self.means.get("loss")

    @property
    def bits_per_byte(self) -> Estimate | None:
        return self.means.get("bits_per_byte")

    @property
    def accuracy(self) -> Estimate | None:
        return self.means.get("accuracy")

    @property
    def excess(self) -> Estimate | None:
        return self.means.get("excess")

    @property
    def failed(self) -> int:
        """Number of seeds that stalled or diverged."""
        return len(self.stalled) + len(self.diverged)

    @property
    def seeds_needed(self) -> int | None:
        """Number of further seeds likely to settle an inconclusive arm; None if none would, or if nothing is open."""
        return seeds_needed(self.verdict, self.comparison)


@dataclass(frozen=True)
class NoiseSummary:
    """Scatter over seeds in nats per token: `loss_sd` of the loss within an arm, `difference_sd` of paired differences.

    `detectable` holds the smallest true differences that would have shown with 80 % probability, in the most and in the
    least sensitive comparison. `run` is the noise of one run of a typical arm, `ahead` that by which a study of fresh
    seeds will be planned.
    """

    run: Noise | None
    loss_sd: float | None
    difference_sd: float | None
    detectable: tuple[Interval, Interval] | None
    ahead: Noise | None = None


def as_json(edits: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Edits by path, each as JSON."""
    return tuple((path, json.dumps(value)) for path, value in edits.items())


class SectionSummary(SectionReader, ABC):
    """Findings of one section of the report; `reports.page.sections` defines its figures."""

    @classmethod
    @abstractmethod
    def summarise(cls, data: Collected) -> Self | None:
        """The section's findings from the frames, or None if there are none. Pure."""

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """Warnings for the reader of this section."""
        yield from ()

    opens: ClassVar[bool] = False
    """Whether its answer opens the headline, unless a section answers the study's question."""

    def judged(self, data: Collected, summary: StudySummary) -> Self:
        """The same with findings that rest on the study's verdicts."""
        return self

    @property
    def is_the_question(self) -> bool:
        """Whether this section answers the study's question, and so opens the headline."""
        return False

    def answer(self, summary: StudySummary) -> str:
        """The section's addition to the headline: a sentence, or empty."""
        return ""

    def beside(self, summary: StudySummary) -> Iterator[str]:
        """Sentences to read beside the headline; its own answer, unless that opens the headline."""
        if all(each is not self for each in summary.opening):
            yield self.answer(summary)

    @property
    def effective_compute(self) -> Mapping[str, Interval]:
        """Effective compute of arms, as far as it knows it."""
        return {}

    def notes(self, summary: StudySummary) -> Iterator[str]:
        """Lines in small print below the answer, on the page and in a terminal."""
        yield from ()

    def in_terminal(self, summary: StudySummary) -> Iterator[str]:
        """Lines for a terminal, where the section itself is not shown."""
        yield from ()

    @classmethod
    def in_json(cls, summary: StudySummary) -> JsonObject:
        """Fields that it adds to the output of `ablate run --json`."""
        return {}

    def recorded(self, summary: StudySummary) -> Mapping[str, object]:
        """Fields that it adds to a recorded result."""
        return {}


@dataclass(frozen=True)
class StudySummary:
    """All findings that a report shows. `environment` maps a key to its distinct values over the runs, `ledger` holds
    earlier judgements under the study's name, `elsewhere` those under other names, `contrasts` the comparisons between
    arms other than the baseline, `unmeasured` the reason why speeds are unknown. A study with a factorial design has
    `effects`; its arms are not compared.

    `sections` are those with something to show, by name, in page order. `grouped` are tasks of which a group has the
    score too: figures draw only the group, tables have both.
    """

    study: StudyDocument
    arms: tuple[ArmSummary, ...]
    noise: NoiseSummary
    warnings: tuple[str, ...]
    environment: tuple[tuple[str, tuple[str, ...]], ...]
    runs: pl.DataFrame
    ledger: tuple[LedgerRecord, ...]
    elsewhere: tuple[tuple[LedgerRecord, ...], ...]
    contrasts: tuple[Judgement, ...]
    effects: tuple[EffectSummary, ...]
    unmeasured: str | None
    grouped: frozenset[str]
    sections: Mapping[str, SectionSummary]
    inputs: Inputs = NO_INPUTS
    """Training data, vocabularies and contexts of the arms."""
    references: Mapping[str, TextReferences] = field(default_factory=dict)
    """Losses of simple models on the text of each arm, as far as known."""
    store_option: str = ""
    """The option that points commands to its store."""
    began: str | None = None
    """Start of the first run of a registered study (ISO 8601)."""

    @property
    def opening(self) -> tuple[SectionSummary, ...]:
        """Sections whose answers open the headline."""
        every = self.sections.values()
        return tuple(each for each in every if each.is_the_question) or tuple(each for each in every if each.opens)

    @property
    def is_about_loss(self) -> bool:
        """Whether the study asks what verdicts on arms answer, which are on the loss."""
        return not any(each.is_the_question for each in self.opening)

    @property
    def effective_compute(self) -> Mapping[str, Interval]:
        """Effective compute by arm: what its loss would take of the baseline's compute. Empty if unknown."""
        return {arm: found for each in self.sections.values() for arm, found in each.effective_compute.items()}

    def section(self, kind: type[Shown]) -> Shown | None:
        """The findings of a section; None if it has nothing to show."""
        found = self.sections.get(kind.name())
        return found if isinstance(found, kind) else None

    def command(self, *options: str, scale: str | None = None) -> str:
        """The command that runs the study in its store, with the same edits (`StudyDocument.command`)."""
        return self.study.command(*options, self.store_option, scale=scale)

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """Every arm against the baseline, then the declared contrasts, then the effects of a design."""
        first = (
            Judgement(arm.name, self.baseline, arm.comparison, arm.verdict, arm.withheld)
            for arm in self.arms
            if arm.comparison is not None
        )
        return (*first, *self.contrasts, *(each.judgement for each in self.effects))

    @property
    def tests(self) -> tuple[LedgerTest, ...]:
        """Ledger records of all comparisons of losses that the study judges."""
        return tuple(each.comparison.test for each in self.judgements if each.comparison.test is not None)

    @property
    def baseline(self) -> str:
        return self.study.baseline

    @property
    def baseline_arm(self) -> ArmSummary:
        return next(arm for arm in self.arms if arm.name == self.baseline)

    @property
    def unit(self) -> str:
        """Unit of losses and of their differences."""
        return f"nats/{self.study.per}"


def signal_to_noise(arms: Sequence[ArmSummary], task: str, metric: str) -> float | None:
    """(largest − smallest score of an arm) / √(mean of their squared standard errors); None for fewer than two scores
    with errors, or zero errors.

    After Heineman et al. 2025, arXiv:2508.13144, whose noise is over the last checkpoints of a run; here it is over
    items and seeds.
    """
    scores = [score for arm in arms for score in arm.scores if (score.task, score.metric) == (task, metric)]
    known = [(score.value, score.stderr) for score in scores if score.value is not None and score.stderr is not None]
    if len(known) < 2:
        return None
    values, errors = zip(*known, strict=True)
    noise = math.sqrt(sum(error**2 for error in errors) / len(errors))
    return (max(values) - min(values)) / noise if noise else None
