"""Verdicts of a study's tests, corrected for every earlier judgement of its question. Pure.

Tests of a difference and tests of a tie are two families. In each, the tests that appear first in one judgement form a
round, Holm's correction runs within the round, and rounds share 5 % (`statistics.ledger`). A design may ask for
Benjamini and Hochberg's within its round: then the false-discovery rate over all rounds is at most 5 %, since V / R ≤ Σ
V_r / R_r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reports.judge.statistics.estimates import Interval
from reports.judge.statistics.ledger import Contrast, Judged, Ledger, LedgerClaim, corrected, rounds, share
from reports.judge.statistics.simultaneous import Correction, Evidence, together
from reports.judge.verdicts import ALPHA
from store.documents import LedgerRecord, LedgerTest, StudyArm, StudyDocument
from store.documents.claims import LOSS


@dataclass(frozen=True)
class Standing:
    """A test in its family. `p` is corrected: below 0.05 is significant. `level` is what its round may spend, `tests`
    the number of tests in the round."""

    p: float | None
    interval: Interval
    level: float
    tests: int

    def of_each(self, alpha: float = ALPHA) -> float:
        """Level of one test by itself, in a round that may spend its share of `alpha`."""
        return alpha * self.level / ALPHA / self.tests


Pair = tuple[str, str]
"""Names of an arm and of the arm it is compared with."""
Records = Sequence[LedgerRecord]


def ledger_test(
    study: StudyDocument,
    arm: StudyArm,
    base: StudyArm,
    p: float | None = None,
    p_tie: float | None = None,
) -> LedgerTest:
    """The ledger's record of the comparison of two arms' losses."""
    return LedgerTest(
        arm=arm.name,
        baseline=base.name,
        arm_identity=arm.identity,
        baseline_identity=base.identity,
        seeds=None if study.looks else tuple(sorted(_seeds(arm) & _seeds(base))),
        looks=tuple(look.seeds for look in study.looks),
        margin=study.margin,
        tuned=bool(study.tuning),
        at=len(_seeds(arm) & _seeds(base)),
        p=p,
        p_tie=p_tie,
        question=at_any_rate(arm, base),
    )


def at_any_rate(*arms: StudyArm) -> tuple[str, ...]:
    """Digests of the arms without their learning rates; empty if one arm's was stored before these digests existed."""
    found = tuple(arm.identity_at_any_rate for arm in arms if arm.identity_at_any_rate is not None)
    return found if len(found) == len(arms) else ()


def score_test(
    study: StudyDocument, arm: StudyArm, score: str, seeds: Iterable[int], p: float | None, grouped: bool
) -> LedgerTest:
    """The ledger's record of a comparison of an arm's score with the baseline's, which is a question of its own.

    seeds: those evaluated. grouped: whether the task belongs to a group; tasks of groups are yet another question.
    """
    of_losses, seen = ledger_test(study, arm, study.baseline_arm, p), tuple(sorted(seeds))
    family = "scores in groups of" if grouped else "scores of"
    arms = (arm, study.baseline_arm)
    own: dict[str, object] = {
        "measure": score,
        "question": tuple(f"{family} {each.identity_at_any_rate or each.identity}" for each in arms),
        "seeds": None if study.looks else seen,
        "margin": None,
        "tuned": False,
        "at": len(seen),
    }
    return of_losses.model_copy(update=own)


def _seeds(arm: StudyArm) -> set[int]:
    return {run.seed for run in arm.runs}


def differences(
    tests: Sequence[LedgerTest],
    evidence: Mapping[LedgerClaim, Evidence],
    ledger: Records,
    correction: Correction = "holm",
    elsewhere: Sequence[Records] = (),
) -> dict[LedgerClaim, Standing]:
    """Corrected tests of one family, with intervals that exclude zero where the corrected p is significant.

    A test is left out if some of its seeds were judged before, for this question or `elsewhere`: repeating it because
    of its result is no test. It is also left out if it was judged before with room for the noise of tuning, and now has
    none. elsewhere: the ledgers of other names. A ledger that has one of these tests is of the same question
    (`as_one`).
    """
    ledger, told = as_one(tests, ledger, elsewhere)
    found: dict[LedgerClaim, Standing] = {}
    own = {difference_claim(test) for test in _as_tuned(tests, ledger)}
    judged = judgements(difference_claim, lambda test: test.p, tests, ledger)
    for number, round_ in enumerate(rounds(judged, map(difference_claim, _told(told))), start=1):
        level = ALPHA * share(number)
        known = [evidence.get(claim) if claim in own else None for claim in round_]
        # the first p stands, whichever arms the noise is pooled over by now
        counted = [
            replace(each, p=test.p) if each and test.p is not None else Evidence.of_p(test.p)
            for each, test in zip(known, round_.values(), strict=True)
        ]
        p_values, intervals = together(counted, correction, level)
        for claim, has, p, interval in zip(round_, known, p_values, intervals, strict=True):
            if claim in own:
                corrected_p = min(1.0, p / share(number)) if has else None
                found[claim] = Standing(corrected_p, interval, level, len(round_))
    return found


def ties(
    tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()
) -> dict[LedgerClaim, float | None]:
    """Corrected p-values of ties, keyed by the claim of the difference; tests with late margins are left out."""
    late = late_margins(tests, ledger, elsewhere)
    ledger, told = as_one(tests, ledger, elsewhere)
    found = corrected(judgements(_tie, lambda test: test.p_tie, tests, ledger), map(difference_claim, _told(told)))
    own = {_tie(test) for test in _as_tuned(tests, ledger) if difference_claim(test) not in late}
    return {replace(claim, margin=None): p for claim, p in found.items() if claim in own}


def late_margins(
    tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()
) -> dict[LedgerClaim, float]:
    """Margins of claims that were first judged without a margin or with another one: once a difference is known, a
    larger margin can be chosen."""
    first: dict[LedgerClaim, float | None] = {}
    for test in _tests(as_one(tests, ledger, elsewhere)[0]):
        if test.p is not None:
            first.setdefault(difference_claim(test), test.margin)
    claims = {difference_claim(test): test.margin for test in tests if test.margin is not None}
    return {claim: margin for claim, margin in claims.items() if first.get(claim, margin) != margin}


def as_one(
    tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()
) -> tuple[list[LedgerRecord], list[LedgerRecord]]:
    """The judgements of the tests' question, the oldest first, and those of other questions.

    A copy of a study under another name, with fewer arms, asks the same question of the same runs. So a ledger is part
    of this one if it shares a test with these, or with another ledger that does. Under one name, other budgets, sizes
    and data are other questions.
    """
    found, others = joined(tests, ledger, elsewhere)
    groups = _groups([*tests, *_tests(found)])
    own = {arm for group in groups if any(group & _compared(test) for test in tests) for arm in group}
    return _within(found, own), others


def joined(
    tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records]
) -> tuple[list[LedgerRecord], list[LedgerRecord]]:
    """All judgements under names that share runs with these tests or this ledger, and those under other names."""
    own, others = list(ledger), [(records, _runs(_tests(records))) for records in elsewhere]
    known = _runs([*tests, *_tests(ledger)])
    # follow shared runs from ledger to ledger until none is added
    while found := [each for each in others if known & each[1]]:
        others = [each for each in others if not known & each[1]]
        own += [record for records, _ in found for record in records]
        known = set[object]().union(*(runs for _, runs in found))
    own.sort(key=lambda record: datetime.fromisoformat(record.judged))
    return own, [record for records, _ in others for record in records]


def share_runs(one: Records, other: Records) -> bool:
    """Whether both ledgers have judged the same runs, and so belong to one question."""
    return bool(_runs(_tests(one)) & _runs(_tests(other)))


def looks_at(tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()) -> int:
    """Number of times that the question of these tests was judged, including now."""
    own, _ = as_one(tests, ledger, elsewhere)
    return len(rounds(judgements(difference_claim, lambda test: test.p, tests, own)))


def questions(ledger: Records) -> list[list[LedgerRecord]]:
    """The ledger split into parts without an arm in common (learning rates aside), in the order of their first
    judgement."""
    return sorted((_within(ledger, group) for group in _groups(_tests(ledger))), key=lambda part: part[0].judged)


UNKNOWN = "*"
"""Placeholder for the arms of losses compared before digests without learning rates were stored."""


def _groups(tests: Iterable[LedgerTest]) -> list[set[str]]:
    """Digests of arms by question: arms that share a test belong to one question.

    If the arms of some loss comparison are unknown, all losses are one question.
    """
    all_tests = list(tests)
    old = {UNKNOWN} if any(UNKNOWN in _compared(test) for test in all_tests) else set[str]()
    groups: list[set[str]] = []
    for test in all_tests:
        arms = _compared(test) | (old if test.measure == LOSS else set())
        # merge the groups that this test connects
        touched = [group for group in groups if group & arms]
        groups = [group for group in groups if group not in touched] + [arms.union(*touched)]
    return groups


def _compared(test: LedgerTest) -> set[str]:
    return set(test.question or (UNKNOWN,))


def _within(ledger: Records, arms: set[str]) -> list[LedgerRecord]:
    """The judgements restricted to tests that compare some of these arms."""
    found = (
        record.model_copy(update={"tests": tuple(test for test in record.tests if arms & _compared(test))})
        for record in ledger
    )
    return [record for record in found if record.tests]


def _tests(ledger: Records) -> Iterator[LedgerTest]:
    return (test for record in ledger for test in record.tests)


def _runs(tests: Iterable[LedgerTest]) -> set[object]:
    """Keys of tests; tests of the same runs have the same key."""
    return {claim.runs for claim in map(difference_claim, tests) if claim.runs}


def judgements(
    claim: Callable[[LedgerTest], LedgerClaim],
    p: Callable[[LedgerTest], float | None],
    tests: Sequence[LedgerTest],
    ledger: Records,
) -> Ledger:
    """Earlier judgements, then this one, in the form of `statistics.ledger`."""
    earlier = [_as_tuned(record.tests, ledger[:number]) for number, record in enumerate(ledger)]
    return [[Judged(claim(test), p(test), test.at) for test in each] for each in (*earlier, _as_tuned(tests, ledger))]


def _as_tuned(tests: Sequence[LedgerTest], ledger: Records) -> list[LedgerTest]:
    """Tests without those judged before with tuned arms and now without tuning: writing the tuned rates into the study
    does not remove the noise of tuning."""
    tuned = {difference_claim(test) for record in ledger for test in record.tests if test.tuned}
    return [test for test in tests if test.tuned or difference_claim(test) not in tuned]


def _told(elsewhere: Iterable[LedgerRecord]) -> Iterator[LedgerTest]:
    """Earlier tests that have a p-value."""
    return (test for record in elsewhere for test in record.tests if test.p is not None)


def difference_claim(test: LedgerTest) -> LedgerClaim:
    seeds = None if test.seeds is None else frozenset(test.seeds)
    return LedgerClaim(Contrast(test.arm_identity, test.baseline_identity, test.measure), seeds, test.looks)


def _tie(test: LedgerTest) -> LedgerClaim:
    return replace(difference_claim(test), margin=test.margin)
