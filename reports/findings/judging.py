"""What a study's tests are worth after everything that was ever judged for its question. Pure.

Tests of a difference and tests of a tie are two families. In each, the tests of one judgement that no earlier one had
are a round, Holm's correction runs within the round, and rounds share 5 % (`reports.statistics.ledger`). A design may
ask for Benjamini and Hochberg's within its round: then the false-discovery rate over all rounds is at most 5 %, since
V / R ≤ Σ V_r / R_r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ablate.store.documents import LedgerRecord, LedgerTest, StudyArm, StudyDocument
from reports.statistics.estimates import ALPHA
from reports.statistics.interval import Interval
from reports.statistics.ledger import Claim, Contrast, Judged, Ledger, corrected, is_same, rounds, share
from reports.statistics.screening import Correction, together
from reports.statistics.simultaneous import Evidence, of_p


@dataclass(frozen=True)
class Standing:
    """A test in its family. `p` is corrected: below 0.05 is significant. `level` is what its round may spend, `tests`
    how many share it."""

    p: float | None
    interval: Interval
    level: float
    tests: int


Pair = tuple[str, str]
"""The names of an arm and of the one that it is compared with."""


def ledger_test(
    study: StudyDocument, arm: StudyArm, base: StudyArm, p: float | None, p_tie: float | None
) -> LedgerTest:
    """What the ledger keeps of a comparison."""
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
    )


def _seeds(arm: StudyArm) -> set[int]:
    return {run.seed for run in arm.runs}


def differences(
    tests: Sequence[LedgerTest],
    evidence: Mapping[Pair, Evidence],
    ledger: Sequence[LedgerRecord],
    correction: Correction = "holm",
    elsewhere: Sequence[Sequence[LedgerRecord]] = (),
) -> dict[Pair, Standing]:
    """By pair, with intervals that exclude zero where the corrected p is significant.

    A pair is left out whose seeds were judged before, in part, for this question or `elsewhere`: repeating a test
    because of what it showed is no test. So is one that was judged with room for the noise of tuning and now has none.
    elsewhere: the ledgers of other names. One that has a test of these is of the same question (`as_one`).
    """
    ledger, told = as_one(tests, ledger, elsewhere)
    found: dict[Pair, Standing] = {}
    own = _by_claim(_as_tuned(tests, ledger), difference_claim)
    judged = judgements(difference_claim, lambda test: test.p, tests, ledger)
    for number, claims in enumerate(rounds(judged, map(difference_claim, _told(told))), start=1):
        level = ALPHA * share(number)
        known = [evidence.get(own[claim][0]) if claim in own else None for claim in claims]
        # the first p stands, whatever arms are in the pool of noise by now
        counted = [
            replace(each, p=p) if each and p is not None else of_p(p)
            for each, p in zip(known, claims.values(), strict=True)
        ]
        p_values, intervals = together(counted, correction, level)
        for claim, has, p, interval in zip(claims, known, p_values, intervals, strict=True):
            standing = Standing(min(1.0, p / share(number)) if has else None, interval, level, len(claims))
            found |= dict.fromkeys(own.get(claim, ()), standing)
    return found


def ties(
    tests: Sequence[LedgerTest], ledger: Sequence[LedgerRecord], elsewhere: Sequence[Sequence[LedgerRecord]] = ()
) -> dict[Pair, float | None]:
    """Corrected p-values by pair. Another margin is another test."""
    ledger, told = as_one(tests, ledger, elsewhere)
    found = corrected(judgements(_tie, lambda test: test.p_tie, tests, ledger), map(difference_claim, _told(told)))
    own = _by_claim(_as_tuned(tests, ledger), _tie)
    return {pair: found[claim] for claim in found.keys() & own.keys() for pair in own[claim]}


def as_one(
    tests: Sequence[LedgerTest], ledger: Sequence[LedgerRecord], elsewhere: Sequence[Sequence[LedgerRecord]]
) -> tuple[Sequence[LedgerRecord], Sequence[LedgerRecord]]:
    """The ledger of the question, the oldest judgement first, and what was judged for others.

    Whoever copies a study under another name and leaves out arms asks the same question of the same runs: a ledger that
    has one of these tests, or of those in a ledger that has, is part of this one.
    """
    own, others = list(ledger), list(elsewhere)
    known = [*map(difference_claim, tests), *_claims(ledger)]
    while found := [each for each in others if any(is_same(a, b) for a in known for b in _claims(each))]:
        own += [record for each in found for record in each]
        known = [claim for each in found for claim in _claims(each)]
        others = [each for each in others if each not in found]
    own.sort(key=lambda record: datetime.fromisoformat(record.judged))
    return own, [record for each in others for record in each]


def _claims(ledger: Iterable[LedgerRecord]) -> list[Claim]:
    return [difference_claim(test) for record in ledger for test in record.tests]


def judgements(
    claim: Callable[[LedgerTest], Claim],
    p: Callable[[LedgerTest], float | None],
    tests: Sequence[LedgerTest],
    ledger: Sequence[LedgerRecord],
) -> Ledger:
    """Earlier ones, then this one, as `reports.statistics.ledger` reads them."""
    earlier = [_as_tuned(record.tests, ledger[:number]) for number, record in enumerate(ledger)]
    return [[Judged(claim(test), p(test), test.at) for test in each] for each in (*earlier, _as_tuned(tests, ledger))]


def _as_tuned(tests: Sequence[LedgerTest], ledger: Sequence[LedgerRecord]) -> list[LedgerTest]:
    """Without those that were judged before as tests of arms that the study tuned, and are now of rates that were
    written down since: the noise of tuning is not gone."""
    tuned = {difference_claim(test) for record in ledger for test in record.tests if test.tuned}
    return [test for test in tests if test.tuned or difference_claim(test) not in tuned]


def _told(elsewhere: Iterable[LedgerRecord]) -> Iterator[LedgerTest]:
    """What had a verdict."""
    return (test for record in elsewhere for test in record.tests if test.p is not None)


def _by_claim(tests: Iterable[LedgerTest], claim: Callable[[LedgerTest], Claim]) -> dict[Claim, list[Pair]]:
    """The pairs of each claim: several where arms are the same architecture under two names."""
    found: dict[Claim, list[Pair]] = {}
    for test in tests:
        found.setdefault(claim(test), []).append((test.arm, test.baseline))
    return found


def difference_claim(test: LedgerTest) -> Claim:
    seeds = None if test.seeds is None else frozenset(test.seeds)
    return Claim(Contrast(test.arm_identity, test.baseline_identity), seeds, test.looks)


def _tie(test: LedgerTest) -> Claim:
    return replace(difference_claim(test), margin=test.margin)
