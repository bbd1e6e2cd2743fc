"""The shapes of what a study found: frozen tuples that tables, figures and pages draw from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, get_args

import polars as pl

from ablate.noise.scatter import Noise, Odd
from ablate.store.documents import LedgerRecord, LedgerTest, StudyDocument, StudyEffect
from reports.claims.judged_claim import JudgedClaim
from reports.findings.comparison import Comparison, Judgement, seeds_needed
from reports.ladders.rungs import Change
from reports.reading.inputs import NO_INPUTS, Inputs
from reports.scores.items import ItemDifference
from reports.statistics.estimates import Estimate
from reports.statistics.interval import Interval
from reports.verdicts import Verdict

Shown = TypeVar("Shown", bound="SectionSummary")

RANKS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class EffectSummary:
    """Effect of one factor of a design, or of the interaction of two. In `judgement.comparison`, `difference` is the
    mean loss of half of the runs minus that of the other half."""

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

    `value` is None where a seed has none: a mean without an infinite perplexity would flatter.
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
class ArmBudget:
    """Planned budget of one run of an arm.

    `train_seconds` is what it took, `allowed_seconds` what it was given where the budget is in seconds.
    """

    tokens: int
    steps: int
    flops: float
    parameters: int
    train_seconds: float | None
    allowed_seconds: float | None


@dataclass(frozen=True)
class ArmSummary:
    """One arm over the `seeds` that trained. `comparison` is None for the baseline.

    Text has bits per byte; synthetic tasks have an accuracy and, where the lowest possible loss is known, an `excess`
    above it in nats per token.

    Beside its own `edits`, `tuned` are the settings that tuning chose, and `matching` those that gave it the baseline's
    parameters.
    """

    name: str
    edits: tuple[tuple[str, str], ...]
    tuned: tuple[tuple[str, str], ...]
    matching: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    stalled: tuple[int, ...]
    diverged: tuple[int, ...]
    missing: tuple[int, ...]
    means: Mapping[str, Estimate]
    """Over seeds, of every number in the frame of runs that a seed has, by column; and of the `excess`."""
    training_speed: float | None
    """Tokens per second, as measured in alternation with the other arms."""
    outlier: Odd | None
    """A seed far from the others."""
    kv_bytes_per_token: float | None
    cache_bytes: tuple[tuple[int, int], ...]
    parameters_embedding: int
    flops_per_token: float
    budget: ArmBudget
    scores: tuple[MeanScore, ...]
    items: tuple[ItemDifference, ...]
    comparison: Comparison | None
    verdict: Verdict
    withheld: str | None
    """Why there is no verdict."""

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
    """Scatter over seeds in nats per token: of the loss within an arm, of the paired differences.

    `detectable` are the smallest true differences that would have shown with 80 % probability: in the arm where
    least suffices, and in the one that takes most. `run` is that of one run, pooled over the study's; `noisier` arms
    have their own, and each pair of `quiet` arms, which differ less from seed to seed than
    from the others, counts as one.
    """

    run: Noise | None
    loss_sd: float | None
    difference_sd: float | None
    detectable: tuple[Interval, Interval] | None
    noisier: tuple[str, ...] = ()
    quiet: tuple[tuple[str, str], ...] = ()


class SectionSummary:
    """Findings of one section of the report. `reports.sections` says what it draws."""

    @classmethod
    def name(cls) -> str:
        """Name of the section: that of its module."""
        return cls.__module__.rpartition(".")[2]

    @property
    def is_the_question(self) -> bool:
        """Whether the study was made to ask what this section answers, which then opens the headline."""
        return False

    def answer(self, summary: StudySummary) -> str:
        """The section's addition to the headline: a sentence, or empty."""
        return ""


@dataclass(frozen=True)
class StudySummary:
    """All that a report says. `environment` maps a key to its distinct values over the runs, `ledger` is what was
    judged under its name before, `elsewhere` what was under others, `contrasts` are those between arms other than the
    baseline, `changes` say whether differences change with size and length, `unmeasured` why speeds are not
    known. A study with a factorial design has
    `effects`; its arms are compared with nothing.

    `sections` are those that have something to show, by name, in the order of the page; `grouped` are tasks of which a
    group has the score too: figures draw the group, tables have both.
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
    changes: tuple[Change, ...]
    unmeasured: str | None
    grouped: frozenset[str]
    sections: Mapping[str, SectionSummary]
    claims: tuple[JudgedClaim, ...] = ()
    """Outcomes of what the study claims, in its order."""
    inputs: Inputs = NO_INPUTS
    """Data, vocabularies and contexts of the arms."""
    store_option: str = ""
    """The option by which commands find its store."""
    began: str | None = None
    """Start of the first run of a registered study (ISO 8601)."""

    def section(self, kind: type[Shown]) -> Shown | None:
        """The result of a section; None if it has nothing to show."""
        found = self.sections.get(kind.name())
        return found if isinstance(found, kind) else None

    def command(self, *options: str, scale: str | None = None) -> str:
        """The command that runs the study in its store, edited as it was (`StudyDocument.command`)."""
        return self.study.command(*options, self.store_option, scale=scale)

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """Every arm against the baseline, then the contrasts that the study declares, then the effects of a design."""
        first = (
            Judgement(arm.name, self.baseline, arm.comparison, arm.verdict, arm.withheld)
            for arm in self.arms
            if arm.comparison is not None
        )
        return (*first, *self.contrasts, *(each.judgement for each in self.effects))

    @property
    def tests(self) -> tuple[LedgerTest, ...]:
        """Every comparison of losses that it judges, as the ledger keeps it."""
        return tuple(each.comparison.test for each in self.judgements if each.comparison.test is not None)

    @property
    def score_tests(self) -> tuple[LedgerTest, ...]:
        """Every comparison of scores that it judges, as the ledger keeps it."""
        return tuple(item.test for arm in self.arms for item in arm.items if item.test is not None)

    @property
    def baseline(self) -> str:
        return self.study.baseline

    @property
    def unit(self) -> str:
        """Unit of losses and of their differences."""
        return f"nats/{self.study.per}"
