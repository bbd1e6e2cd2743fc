"""Prospects of a study before it is trained: the difference that it will probably see, or why it will judge nothing."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from ablate.planning.campaign import CampaignOutcome
from ablate.planning.foresight import Foresight, detectable_lines, foresight
from ablate.planning.study_document import study_document
from ablate.planning.unjudged import seeds_line, unjudged
from ablate.store import Store
from ablate.store.documents import StudyDocument
from ablate.study.study import Study


@dataclass(frozen=True)
class Prospects:
    """Prospects of a planned outcome in a store. asked: the study as it was read, with its tuning."""

    outcome: CampaignOutcome
    store: Store
    asked: Study

    @cached_property
    def foresight(self) -> Foresight:
        """The noise that is expected, and where it was measured."""
        return foresight(self.outcome.plan, self.store, self.asked.tune)

    @cached_property
    def judged(self) -> JudgedBefore:
        """Earlier judgements of this study's question, from the store's ledgers."""
        if not self.compares_arms or not self.store.ledgers():
            return JudgedBefore.never()
        return JudgedBefore.of(study_document(self.outcome, aliases=self.store.aliases), self.store)

    @property
    def compares_arms(self) -> bool:
        """Whether arms are compared one by one, which a search and a factorial design do not."""
        return not (self.asked.is_search_alone or self.asked.screen)

    @property
    def unjudged(self) -> str | None:
        """Why the study will have no verdicts as it is planned; None where it may."""
        seeds = {run.seed for run in self.outcome.plan.runs}
        repeated = " ".join(self.judged.lines(seeds)) if self.judged.repeats_all else ""
        return self.without_verdicts or seeds_line(self.outcome.plan) or repeated or None

    @property
    def without_verdicts(self) -> str | None:
        """Why it would have none with any seeds; None where it may."""
        return unjudged(self.outcome.plan)

    @cached_property
    def detectable(self) -> float | None:
        """The difference in nats that the study will probably find (80 %); None where nothing is compared or judged."""
        if self.unjudged or not self.compares_arms:
            return None
        return self.foresight.detectable(self.outcome.plan, self.judged.level)

    def seeds(self, difference: float) -> int | None:
        """The fewest fresh seeds that find such a difference with 80 % probability; None where none do."""
        if self.without_verdicts or not self.compares_arms:
            return None
        return self.foresight.seeds(self.outcome.plan, difference, self.judged.fresh)

    def lines(self) -> Iterator[str]:
        """Lines on what the study will probably see, and on seeds that cannot judge it; or on why nothing is judged."""
        yield from detectable_lines(self.detectable, self.foresight, tuned=self.asked.tune is not None)
        if reason := self.unjudged:
            yield reason
        else:
            yield from self.judged.lines({run.seed for run in self.outcome.plan.runs})


@dataclass(frozen=True)
class JudgedBefore:
    """seeds: all whose results the question was judged on, or shown. level: the risk of a false verdict that the
    judgement which is planned may take. fresh: that of one on other seeds. repeats: whether it has some of these seeds
    in another set, so that some comparisons have no verdict. repeats_all: whether none has one."""

    seeds: frozenset[int]
    level: float
    fresh: float
    repeats: bool = False
    repeats_all: bool = False

    @classmethod
    def never(cls) -> JudgedBefore:
        """A question that nobody has asked."""
        from ablate.noise.power import ALPHA, FIRST_SHARE  # noqa: PLC0415 (a run needs no scipy)

        return cls(frozenset(), FIRST_SHARE * ALPHA, FIRST_SHARE * ALPHA)

    @classmethod
    def of(cls, study: StudyDocument, store: Store) -> JudgedBefore:
        """The question of a study as it is planned, whatever studies of the store have judged it."""
        from ablate.noise.power import ALPHA  # noqa: PLC0415 (as above)
        from reports.findings.judging import (  # noqa: PLC0415 (a first plan needs none)
            as_one,
            difference_claim,
            differences,
            ledger_test,
            looks_at,
        )
        from reports.statistics.ledger import share  # noqa: PLC0415 (as above)

        tests = [ledger_test(study, arm, study.baseline_arm, 1.0) for arm in study.arms if arm.name != study.baseline]
        own = store.read_ledger(study.name)
        elsewhere = [store.read_ledger(name) for name in store.ledgers() if name != study.name]
        found, _ = as_one(tests, own, elsewhere)
        if not found:
            return cls.never()
        seeds = frozenset(seed for record in found for test in record.tests for seed in test.seen)
        judged = differences(tests, {}, own, elsewhere=elsewhere)
        again = [difference_claim(test) not in judged for test in tests]
        # Tests of some seeds that were judged, beside others, are no look; those of a seed that nobody had are one.
        unseen = 1 + max(seeds, default=0)
        fresh = [test.model_copy(update={"seeds": (unseen,)}) for test in tests]
        level, later = (ALPHA * share(looks_at(each, own, elsewhere)) for each in (tests, fresh))
        return cls(seeds, level, later, repeats=any(again), repeats_all=all(again))

    def lines(self, planned: Set[int]) -> list[str]:
        """A warning where seeds that were shown are to be judged beside others, of which no verdict comes."""
        if not self.repeats:
            return []
        fresh = max(self.seeds, default=-1) + 1
        return [
            f"{len(self.seeds & planned)} of these seeds were shown before: in another set they give no verdict. Fresh"
            f" seeds begin at {fresh}, and are judged at the {100 * self.fresh:.2g} % that is left to this question of"
            " the 5 %"
        ]
