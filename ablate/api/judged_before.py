"""Earlier judgements of a question, from a store's ledgers, before it is asked again."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from ablate.store import Store
from ablate.store.documents import StudyDocument


@dataclass(frozen=True)
class JudgedBefore:
    """sets: the seeds of each judgement of the question. level: the risk of a false verdict that the judgement which is
    planned may take. fresh: that of one on other seeds."""

    sets: frozenset[frozenset[int]]
    level: float
    fresh: float

    @property
    def seeds(self) -> frozenset[int]:
        """All that it was judged on."""
        return frozenset().union(*self.sets)

    @classmethod
    def never(cls) -> JudgedBefore:
        """A question that nobody has asked."""
        from ablate.noise.power import ALPHA, FIRST_SHARE  # noqa: PLC0415 (a run needs no scipy)

        return cls(frozenset(), FIRST_SHARE * ALPHA, FIRST_SHARE * ALPHA)

    @classmethod
    def of(cls, study: StudyDocument, store: Store) -> JudgedBefore:
        """The question of a study as it is planned, whatever studies of the store have judged it."""
        from ablate.noise.power import ALPHA  # noqa: PLC0415 (as above)
        from reports.findings.judging import as_one, ledger_test, looks_at  # noqa: PLC0415 (a first plan needs none)
        from reports.statistics.ledger import share  # noqa: PLC0415 (as above)

        tests = [ledger_test(study, arm, study.baseline_arm, 1.0) for arm in study.arms if arm.name != study.baseline]
        own = store.read_ledger(study.name)
        elsewhere = [store.read_ledger(name) for name in store.ledgers() if name != study.name]
        found, _ = as_one(tests, own, elsewhere)
        sets = frozenset(frozenset(test.seeds or ()) for record in found for test in record.tests)
        if not found:
            return cls.never()
        # Tests of some seeds that were judged, beside others, are no look; those of a seed that nobody had are one.
        unseen = 1 + max(frozenset().union(*sets), default=0)
        fresh = [test.model_copy(update={"seeds": (unseen,)}) for test in tests]
        return cls(sets, *(ALPHA * share(looks_at(each, own, elsewhere)) for each in (tests, fresh)))

    def lines(self, planned: Set[int]) -> list[str]:
        """A warning where seeds that were judged are to be judged again beside others, of which no verdict comes."""
        again = self.seeds & planned
        if not again or planned in self.sets:
            return []
        fresh = max(self.seeds) + 1
        return [
            f"{len(again)} of these seeds were judged before: in another set they give no verdict. Fresh seeds begin at"
            f" {fresh}, and are judged at the {100 * self.fresh:.2g} % that is left to this question of the 5 %"
        ]
