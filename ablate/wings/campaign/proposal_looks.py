"""Train a proposal beside its base: first with `LEAST_SEEDS` seeds, then with as many as the budget has room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from ablate.wings.campaign.campaign_log import ProposalOutcome, ProposalRecord, ProposalTest, study_of
from ablate.wings.campaign.proposals import (
    LEAST_SEEDS,
    MOST_SEEDS,
    WORTH,
    confirm,
    is_hopeless,
    kept,
    p_values,
    ratios,
    rule,
    tested,
)
from ablate.wings.promoting import CHANGE, Edits, proposal
from store import Store
from store.documents import StudyDocument
from store.errors import ArgumentError

FIRST_SEED, SEEDS_EACH = 10_000, 100
"""Proposal n has `SEEDS_EACH` seeds from FIRST_SEED + SEEDS_EACH · n on, far from those of studies and searches."""


@dataclass(frozen=True)
class Case:
    """A proposal to judge. budget: seconds. replicate: a second scale. alpha: the campaign's false-discovery rate."""

    study: Study
    context: RunContext
    campaign: str
    edits: Edits
    name: str
    budget: float
    replicate: str | None
    alpha: float

    @property
    def store(self) -> Store:
        return self.context.store


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
