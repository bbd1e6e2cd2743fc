"""Verdicts of a study's tests, corrected for every earlier judgement of its question. Pure.

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
Records = Sequence[LedgerRecord]


def ledger_test(
    study: StudyDocument, arm: StudyArm, base: StudyArm, p: float | None, p_tie: float | None = None
) -> LedgerTest:
    """The comparison of two arms' losses, as the ledger keeps it."""
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
    """Digests of the arms but for their learning rates; none where one is of a store from before."""
    found = tuple(arm.identity_at_any_rate for arm in arms if arm.identity_at_any_rate is not None)
    return found if len(found) == len(arms) else ()


SCORES = "scores of "
GROUPED = "scores in groups of "


def score_test(
    study: StudyDocument, arm: StudyArm, score: str, seeds: Iterable[int], p: float | None, grouped: bool
) -> LedgerTest:
    """The comparison of an arm's score with the baseline's, as the ledger keeps it. A question of its own."""
    base, seen = study.baseline_arm, tuple(sorted(seeds))
    family = GROUPED if grouped else SCORES
    return LedgerTest(
        arm=arm.name,
        baseline=base.name,
        arm_identity=arm.identity,
        baseline_identity=base.identity,
        measure=score,
        question=tuple(f"{family}{each.identity_at_any_rate or each.identity}" for each in (arm, base)),
        seeds=None if study.looks else seen,
        looks=tuple(look.seeds for look in study.looks),
        margin=None,
        at=len(seen),
        p=p,
        p_tie=None,
    )


def is_score(arm: str) -> bool:
    """Whether a digest in a test's question stands for an arm's scores rather than its losses."""
    return arm.startswith((SCORES, GROUPED))


def _seeds(arm: StudyArm) -> set[int]:
    return {run.seed for run in arm.runs}


def differences(
    tests: Sequence[LedgerTest],
    evidence: Mapping[Claim, Evidence],
    ledger: Records,
    correction: Correction = "holm",
    elsewhere: Sequence[Records] = (),
) -> dict[Claim, Standing]:
    """Verdicts by test, all of one family, with intervals that exclude zero where the corrected p is significant.

    A test is left out whose seeds were judged before, in part, for this question or `elsewhere`: repeating it because
    of what it showed is no test. So is one that was judged with room for the noise of tuning and now has none.
    elsewhere: the ledgers of other names. One that has a test of these is of the same question (`as_one`).
    """
    ledger, told = as_one(tests, ledger, elsewhere)
    found: dict[Claim, Standing] = {}
    own = {difference_claim(test) for test in _as_tuned(tests, ledger)}
    judged = judgements(difference_claim, lambda test: test.p, tests, ledger)
    for number, claims in enumerate(rounds(judged, map(difference_claim, _told(told))), start=1):
        level = ALPHA * share(number)
        known = [evidence.get(claim) if claim in own else None for claim in claims]
        # the first p stands, whatever arms are in the pool of noise by now
        counted = [
            replace(each, p=p) if each and p is not None else of_p(p)
            for each, p in zip(known, claims.values(), strict=True)
        ]
        p_values, intervals = together(counted, correction, level)
        for claim, has, p, interval in zip(claims, known, p_values, intervals, strict=True):
            if claim in own:
                found[claim] = Standing(min(1.0, p / share(number)) if has else None, interval, level, len(claims))
    return found


def ties(tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()) -> dict[Claim, float | None]:
    """Corrected p-values by the claim of the difference. Another margin is another test."""
    ledger, told = as_one(tests, ledger, elsewhere)
    found = corrected(judgements(_tie, lambda test: test.p_tie, tests, ledger), map(difference_claim, _told(told)))
    own = {_tie(test) for test in _as_tuned(tests, ledger)}
    return {replace(claim, margin=None): p for claim, p in found.items() if claim in own}


def as_one(
    tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()
) -> tuple[list[LedgerRecord], list[LedgerRecord]]:
    """The judgements of the tests' question, the oldest first, and what was judged for others.

    Whoever copies a study under another name and leaves out arms asks the same question of the same runs: a ledger that
    has one of these tests, or of those in a ledger that has, is part of this one. Of what was judged under one name,
    other budgets, sizes and data are other questions.
    """
    found, others = joined(tests, ledger, elsewhere)
    groups = _groups([*tests, *_tests(found)])
    return _within(
        found, set[str]().union(*(group for group in groups if any(_is_of(test, group) for test in tests)))
    ), others


def joined(
    tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records]
) -> tuple[list[LedgerRecord], list[LedgerRecord]]:
    """All that was judged under names that share runs with these tests or this ledger, and what was under others."""
    own, others = list(ledger), list(elsewhere)
    known = [*map(difference_claim, tests), *_claims(ledger)]
    while found := [each for each in others if any(is_same(a, b) for a in known for b in _claims(each))]:
        own += [record for each in found for record in each]
        known = [claim for each in found for claim in _claims(each)]
        others = [each for each in others if each not in found]
    own.sort(key=lambda record: datetime.fromisoformat(record.judged))
    return own, [record for each in others for record in each]


def looks_at(tests: Sequence[LedgerTest], ledger: Records, elsewhere: Sequence[Records] = ()) -> int:
    """Number of times that the question of these tests was judged, this time included."""
    own, _ = as_one(tests, ledger, elsewhere)
    return len(rounds(judgements(difference_claim, lambda test: test.p, tests, own)))


def questions(ledger: Records) -> list[list[LedgerRecord]]:
    """The ledger in parts that have no arm in common, at whatever rates, in the order of their first judgements."""
    return sorted((_within(ledger, group) for group in _groups(_tests(ledger))), key=lambda part: part[0].judged)


ANY = "*"
"""Stands for the arms of a test from before digests of arms at any rate were written: it may be of any question."""


def _groups(tests: Iterable[LedgerTest]) -> list[set[str]]:
    """Digests of arms by question: of one are those that a test compares, and those that share a test with them."""
    groups: list[set[str]] = []
    for test in tests:
        arms = set(test.question or (ANY,))
        touched = [group for group in groups if group & arms]
        groups = [group for group in groups if group not in touched] + [arms.union(*touched)]
    old = [group for group in groups if ANY in group]
    losses = [group for group in groups if any(not is_score(arm) for arm in group)]
    return [*(group for group in groups if group not in losses), set[str]().union(*losses)] if old else groups


def _is_of(test: LedgerTest, group: set[str]) -> bool:
    return bool(group & set(test.question or (ANY,)))


def _within(ledger: Records, group: set[str]) -> list[LedgerRecord]:
    """The judgements of one question."""
    found = (
        record.model_copy(update={"tests": tuple(test for test in record.tests if _is_of(test, group))})
        for record in ledger
    )
    return [record for record in found if record.tests]


def _tests(ledger: Records) -> Iterator[LedgerTest]:
    return (test for record in ledger for test in record.tests)


def _claims(ledger: Records) -> list[Claim]:
    return list(map(difference_claim, _tests(ledger)))


def judgements(
    claim: Callable[[LedgerTest], Claim],
    p: Callable[[LedgerTest], float | None],
    tests: Sequence[LedgerTest],
    ledger: Records,
) -> Ledger:
    """Earlier ones, then this one, as `reports.statistics.ledger` reads them."""
    earlier = [_as_tuned(record.tests, ledger[:number]) for number, record in enumerate(ledger)]
    return [[Judged(claim(test), p(test), test.at) for test in each] for each in (*earlier, _as_tuned(tests, ledger))]


def _as_tuned(tests: Sequence[LedgerTest], ledger: Records) -> list[LedgerTest]:
    """Without those that were judged before as tests of arms that the study tuned, and are now of rates that were
    written down since: the noise of tuning is not gone."""
    tuned = {difference_claim(test) for record in ledger for test in record.tests if test.tuned}
    return [test for test in tests if test.tuned or difference_claim(test) not in tuned]


def _told(elsewhere: Iterable[LedgerRecord]) -> Iterator[LedgerTest]:
    """Earlier tests that had a verdict."""
    return (test for record in elsewhere for test in record.tests if test.p is not None)


def difference_claim(test: LedgerTest) -> Claim:
    seeds = None if test.seeds is None else frozenset(test.seeds)
    return Claim(Contrast(test.arm_identity, test.baseline_identity, test.measure), seeds, test.looks)


def _tie(test: LedgerTest) -> Claim:
    return replace(difference_claim(test), margin=test.margin)
