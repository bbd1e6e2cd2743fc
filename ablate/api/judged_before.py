"""Earlier judgements of a question, from a store's ledgers, before it is asked again."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from ablate.store import Store
from ablate.store.documents import StudyDocument


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
