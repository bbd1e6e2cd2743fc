"""Proposals to change a base: how each is trained beside it, and the decision on it.

The one-sided p-value tests the null that the change is no better. The change is a discovery if p ≤ α_t of SAFFRON
(`browse.history`): at most a share α of a campaign's discoveries is expected to be no improvement. It is kept unless it
is surely smaller than what is worth a change. Base and change train on seeds that no other proposal used, so p-values
are independent, which the rule needs; first with `LEAST_SEEDS` seeds, then with as many as the budget has room for.

A proposal that shows no sign of an improvement on its first seeds ends there. That makes no p-value smaller: if p ≤ ½,
it is the p-value of all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import polars as pl

from ablate.api.planning import plan
from ablate.api.running import run
from ablate.readable import clock
from ablate.running.context import RunContext
from ablate.running.options import PlanOptions, RunOptions
from ablate.running.progress import Wanted
from ablate.study.study import Study
from ablate.wings.browse.history import saffron
from ablate.wings.campaign.campaign_log import Decision, ProposalOutcome, ProposalRecord, ProposalTest, study_of
from ablate.wings.compare.losses import ArmLosses, judge
from ablate.wings.promoting import CHANGE, Edits, proposal
from reports.judge.findings.noise import StudyNoise, study_noise
from reports.judge.findings.study_summary import StudySummary
from store import Store
from store.documents import JsonObject, StudyArm, StudyDocument
from store.errors import ArgumentError
from zoo.settings.identity import digest_of, identity_of

FALSE_DISCOVERIES = 0.1
"""α: the expected share of kept changes that are no improvement."""
LEAST_SEEDS, MOST_SEEDS = 3, 12
"""Numbers of seeds: at the first look, and in all."""
CONFIRMED = 0.05
"""Level of the test at a second scale, which only changes that passed the first take."""
WORTH = 0.01
"""Smallest improvement in nats worth a change, unless the study has a margin."""


@dataclass(frozen=True)
class Ruling:
    """A decision, its reason, and the level with which p was compared."""

    decision: Decision
    reason: str
    level: float


def tested(summary: StudySummary, change: str) -> ProposalTest:
    """The comparison of a change with its base, from all seeds of a study that trained both."""
    study = summary.study
    base, own = (_losses(summary.runs, name) for name in (study.baseline, change))
    test = compared(base, own, study_noise(study.tuning, summary.runs), study.scale, study.name)
    if test.difference is None or test.low is not None or test.high is not None:
        return test
    untuned = [
        f"{each.arm}: {each.reason or 'its best learning rate is at the edge'}" for each in study.tuning if each.edges
    ]
    return test.model_copy(update={"untold": "; ".join(untuned) or None})


def compared(base: ArmLosses, change: ArmLosses, noise: StudyNoise, scale: str, study: str) -> ProposalTest:
    """The comparison of a change with its base, by the pages' rules. One-sided p = P(T ≤ t)."""
    (found,) = judge((base, change), [(change.name, base.name)], noise)
    one_sided = None
    if found.p is not None and found.difference is not None:
        one_sided = found.p / 2 if found.difference < 0 else 1 - found.p / 2
    return ProposalTest(
        scale=scale,
        study=study,
        seeds=tuple(sorted(seed for seed in change.judging if isinstance(seed, int))),
        difference=None if found.p is None else found.difference,
        low=_finite(found.low),
        high=_finite(found.high),
        p=one_sided,
        verdict=found.verdict,
    )


def _finite(end: float | None) -> float | None:
    """The end of an interval; None if the interval is unbounded on this side."""
    return None if end is None or math.isinf(end) else end


def _losses(runs: pl.DataFrame, name: str) -> ArmLosses:
    """Losses by seed; infinite for a run that stalled or diverged."""
    own = runs.filter(pl.col("arm") == name, pl.col("status").is_in(["finished", "stalled", "diverged"]))
    done = own.select("seed", pl.when(status="finished").then("loss")).iter_rows()
    return ArmLosses(name, {seed: math.inf if loss is None else loss for seed, loss in done}, {})


def is_hopeless(test: ProposalTest) -> bool:
    """Whether the first seeds show no sign of an improvement, or no number of seeds could."""
    return test.p is None or test.p > 0.5 or test.untold is not None


def rule(
    test: ProposalTest, before: Sequence[float], worth: float, alpha: float = FALSE_DISCOVERIES, first: bool = False
) -> Ruling:
    """Decide on a test, given the p-values of all earlier proposals.

    worth: smallest improvement worth keeping a change for. first: whether the test ended at the first look.
    """
    (*_, own) = saffron([*before, 1.0 if test.p is None else test.p], alpha)
    if test.p is None or test.difference is None or test.untold:
        return _untested(test, own.level)
    said = f"{len(test.seeds)} fresh paired seeds"
    if test.verdict == "worse":
        return Ruling("discard", f"worse on {said}", own.level)
    if test.low is not None and test.low > -worth:  # also if it is surely better, by less
        return Ruling("discard", f"not better by {worth:g} nats: an improvement is at most {-test.low:.2g}", own.level)
    if own.discovery and test.verdict not in ("stalled", "diverged"):
        return Ruling("keep", f"better on {said}: p = {test.p:.2g}, at level {own.level:.2g}", own.level)
    if first:
        return Ruling("discard", f"no sign of an improvement on {said}", own.level)
    return Ruling("undecided", f"p = {test.p:.2g} on {said}, above the level of {own.level:.2g}", own.level)


def _untested(test: ProposalTest, level: float) -> Ruling:
    if test.verdict in ("stalled", "diverged"):
        return Ruling("discard", "the change does not train", level)
    if test.untold:
        return Ruling("undecided", f"better learning rates may change the result by any amount ({test.untold})", level)
    return Ruling("undecided", "too few seeds finished to compare", level)


def confirm(ruling: Ruling, second: ProposalTest) -> Ruling:
    """Ruling on a change that was to be kept, after its test at a second scale."""
    if second.p is not None and second.p <= CONFIRMED:
        return Ruling("keep", f"{ruling.reason}; confirmed at {second.scale} (p = {second.p:.2g})", ruling.level)
    if second.verdict == "worse":
        return Ruling("discard", f"{ruling.reason}; but worse at {second.scale}", ruling.level)
    return Ruling("undecided", f"{ruling.reason}; not confirmed at {second.scale}", ruling.level)


def latest(records: Iterable[ProposalRecord]) -> list[ProposalRecord]:
    """The last record of each proposal, in the order of decisions."""
    found: dict[int, ProposalRecord] = {}
    for record in records:
        found.pop(record.number, None)
        found[record.number] = record
    return list(found.values())


def p_values(records: Sequence[ProposalRecord]) -> list[float]:
    """p-values of the decided proposals, in the order of decisions; 1 for those without a test."""
    decided = [record.outcome.test.p for record in records if record.outcome is not None]
    return [1.0 if p is None else p for p in decided]


def kept(records: Sequence[ProposalRecord]) -> list[ProposalRecord]:
    """Changes that are part of the base by now."""
    return [record for record in records if record.outcome is not None and record.outcome.decision == "keep"]


def ratios(arm: StudyArm, base: StudyArm) -> JsonObject:
    """Costs of the change as ratios to the base's, by arithmetic."""
    pairs = {
        "parameters": (arm.parameters, base.parameters),
        "flops_per_token": (arm.flops_per_token, base.flops_per_token),
        "kv_bytes_per_token": (arm.kv_bytes_per_token, base.kv_bytes_per_token),
    }
    return {name: own / other for name, (own, other) in pairs.items() if own is not None and other}


FIRST_SEED, SEEDS_EACH = 10_000, 100
"""Proposal n has `SEEDS_EACH` seeds from FIRST_SEED + SEEDS_EACH · n on, far from those of studies and searches."""


@dataclass(frozen=True)
class Case:
    """A proposal to judge. budget: seconds for its runs. total_budget: seconds for all proposals of the store; None for
    no limit. replicate: a second scale. alpha: the campaign's false-discovery rate."""

    study: Study
    context: RunContext
    campaign: str
    edits: Edits
    name: str
    budget: float
    total_budget: float | None
    replicate: str | None
    alpha: float

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def base(self) -> str:
        """Digest of the study's base, without changes that were kept."""
        base = self.study.arms[0]
        return digest_of(
            {"model": base.model.digest, **identity_of({"train": base.train, "data": base.data, **base.given})}
        )


class Looks:
    """The looks at one proposal, and the time spent on them."""

    def __init__(
        self,
        case: Case,
        record: ProposalRecord,
        decided: Sequence[ProposalRecord],
        progress: Wanted,
        options: RunOptions,
    ) -> None:
        self.case, self.record, self.decided = case, record, decided
        self.progress, self.options = progress, options
        self._share = case.budget / 2 if case.replicate else case.budget  # of the first scale, in seconds
        self.seconds_each = 0.0
        """Seconds that one more seed takes, with a run of each arm."""
        self.runs: set[str] = set()
        self.spent = 0.0

    def check_room(self) -> None:
        """Raise ArgumentError if the budget has no room for a first look at each scale, and StudyError if there is no
        such scale."""
        case = self.case
        needed = self._refuse_short(case.study.scale, self._share)
        if case.replicate:
            self._refuse_short(case.replicate, case.budget - needed)

    def outcome(self) -> ProposalOutcome:
        """The decision. Raises ArgumentError if the runs fail, or take the second scale's share of the budget, too."""
        case = self.case
        test, is_first, document = self._test(case.study.scale, self._share)
        worth = case.study.sections.margin or WORTH
        ruling = rule(test, p_values(self.decided), worth, case.alpha, first=is_first)
        second = None
        if ruling.decision == "keep" and case.replicate:
            self._refuse_short(case.replicate, case.budget - self.spent)
            second, _, _ = self._test(case.replicate, case.budget - self.spent)
            ruling = confirm(ruling, second)
        return ProposalOutcome(
            decision=ruling.decision,
            reason=ruling.reason,
            test=test,
            level=ruling.level,
            confirmed=second,
            costs=ratios(document.arm(CHANGE), document.baseline_arm),
            spent_seconds=self.spent,
        )

    def _refuse_short(self, scale: str, budget: float) -> float:
        """The seconds that a first look takes. Raises ArgumentError if that is more than the budget."""
        study = self._study(scale, LEAST_SEEDS)
        names = PlanOptions.__annotations__
        options = cast(PlanOptions, {name: value for name, value in self.options.items() if name in names})
        found = plan(study, store=self.case.store.root, progress=False, **options).time
        needed = found.tuning + found.training
        if needed > budget:
            work = f"{LEAST_SEEDS} seeds of base and proposal at {scale}"
            reason = f"too short: {work} take about {clock(needed)}, tuning included"
            raise ArgumentError("budget", reason, clock(budget))
        return needed

    def _test(self, scale: str, budget: float) -> tuple[ProposalTest, bool, StudyDocument]:
        """The test within a budget in seconds, whether it ended at the first look, and the trained study."""
        spent = self.spent
        test, document = self._look(scale, LEAST_SEEDS)
        if is_hopeless(test):
            return test, True, document
        left = budget - (self.spent - spent)
        more = min(MOST_SEEDS - LEAST_SEEDS, math.floor(left / max(self.seconds_each, 1e-3)))
        if more > 0:
            test, document = self._look(scale, LEAST_SEEDS + more)
        return test, False, document

    def _study(self, scale: str, count: int) -> Study:
        first = FIRST_SEED + SEEDS_EACH * self.record.number
        before = [each.edits for each in kept(self.decided)]
        name = study_of(self.case.campaign, self.record.number)
        return proposal(self.case.study, name, self.case.edits, before, range(first, first + count), scale)

    def _look(self, scale: str, count: int) -> tuple[ProposalTest, StudyDocument]:
        study = self._study(scale, count)
        result = run(study, store=self.case.store.root, progress=self.progress, **self.options)
        summary = result.summary
        if summary is None:
            reason = "; ".join(str(each) for each in result.failed) or "its runs could not be tuned"
            raise ArgumentError("change", f"could not be trained: {reason}", self.case.name)
        own = summary.runs.group_by("arm").agg(pl.col("wall_seconds").mean())
        self.seconds_each = float(own["wall_seconds"].sum()) / result.at_once
        self.runs |= set(summary.runs["digest"])
        passes = [each for tuning in summary.study.tuning for each in (tuning, *tuning.coarse)]
        self.runs |= {digest for each in passes for trial in each.trials for digest in trial.runs}
        # Wall time of the runs that started after the proposal began, so without earlier tuning of the base.
        began = datetime.fromisoformat(self.record.at)
        found = [self.case.store.read_result(digest) for digest in self.runs]
        walls = [each.wall_seconds for each in found if each and datetime.fromisoformat(each.started) >= began]
        self.spent = sum(walls) / result.at_once
        return tested(summary, CHANGE), summary.study
