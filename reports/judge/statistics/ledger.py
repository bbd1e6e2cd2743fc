"""All tests ever made for a question, and the p-values corrected for all of them. Pure.

A test is one arm against one baseline on one set of seeds. A round holds the tests that appear for the first time in
one judgement of the study, and those looked at since the last judgement that have no p-value yet. Round r may spend the
share s_r of α = 0.05. Holm's step-down correction runs over the round's tests alone.

    s_1 = 0.8        s_r = 0.2 / (r·(r − 1)), r ≥ 2        Σ s_r = 1        corrected p = p in the round / s_r

A round thus errs with probability at most α·s_r, and by the union bound α holds over all future rounds (alpha spending,
as in Foster and Stine 2008, doi:10.1111/j.1467-9868.2007.00643.x). So:

- Dropped arms still count: they stay in their round.
- Arms added after results are known form a round of their own, and a question that continues until something wins keeps
  its error rate. Holm over all arms so far would not: with k arms that come one by one, it errs in α·(1 + 1/2 + … +
  1/k) of studies.
- A fixed-sample test is left out if it reuses seeds on which its two arms were judged before, whichever was the
  baseline and whatever the rule. The repetition depends on what those seeds showed, and no division of α corrects that.
  Fresh seeds are a new test in a new round. A test in planned looks (`ablate.planning.foresight`) stays the same test
  with a new p, and may follow a fixed-sample test once, since it chooses no seeds. Other looks are left out.
- Seeds looked at before there was a p-value must all be in the later test.
- Later arms never take back a verdict: a test keeps the p of the first judgement on its number of seeds. An arm's noise
  is drawn towards that of the others, so arms could be added until it suits.

The price is a first round at 0.04. Hundreds of tests need an online rule for the false-discovery rate instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reports.judge.noise.power import FIRST_SHARE
from reports.judge.statistics.estimates import holm_by_name


@dataclass(frozen=True)
class Contrast:
    """Two arms and the score that compares them. Arms are digests of everything but the seed that determines their
    losses, so renaming an arm makes no new one."""

    arm: str
    baseline: str
    measure: str = "loss"

    @property
    def pair(self) -> tuple[frozenset[str], str]:
        """Both arms, whichever is the baseline, and the score."""
        return frozenset({self.arm, self.baseline}), self.measure


@dataclass(frozen=True)
class LedgerClaim:
    """Identity of one test. `seeds` is None if the p-value is valid at each number of seeds in `looks`. `margin` is the
    margin of a tie."""

    contrast: Contrast
    seeds: frozenset[int] | None
    looks: tuple[int, ...] = ()
    margin: float | None = None

    @property
    def runs(self) -> object:
        """Key shared by tests of the same runs, whichever arm is the baseline; None without seeds."""
        return None if self.seeds == frozenset() else (self.contrast.pair, self.seeds, self.looks)


@dataclass(frozen=True)
class Judged:
    """A test with its p-value (None if there is none yet) on `at` seeds; 0 if a later p always replaces this one."""

    claim: LedgerClaim
    p: float | None
    at: int = 0


Round = Mapping[LedgerClaim, Judged]
Ledger = Sequence[Iterable[Judged]]
"""All judgements of one question, the oldest first; each holds every test that it looked at."""


def rounds(ledger: Ledger, elsewhere: Iterable[LedgerClaim] = ()) -> tuple[Round, ...]:
    """Tests grouped by the judgement in which they first appear, each with its last valid p. elsewhere: tests of other
    questions, which join no round here but make their seeds used."""
    found: list[dict[LedgerClaim, Judged]] = []
    home: dict[LedgerClaim, dict[LedgerClaim, Judged]] = {}
    seen = dict.fromkeys(elsewhere, True)
    for judgement in ledger:
        known = seen | {claim: own[claim].p is not None for claim, own in home.items()}
        # a judgement without any p-value yet is continued by the next: both form one round
        if not found or any(judged.p is not None for judged in found[-1].values()):
            found.append({})
        for judged in judgement:
            pair = judged.claim.contrast.pair
            if any(_repeats(judged.claim, each, had_p) for each, had_p in known.items() if each.contrast.pair == pair):
                continue
            # a test stays in the round of its first appearance
            own = home.setdefault(judged.claim, found[-1])
            stands = own.setdefault(judged.claim, judged)
            # the first p stands, unless a later look has more seeds
            if stands.p is None or (judged.p is not None and (stands.at == 0 or judged.at > stands.at)):
                own[judged.claim] = judged
    return tuple(each for each in found if each)


def _repeats(claim: LedgerClaim, other: LedgerClaim, judged: bool) -> bool:
    """Whether a test repeats an earlier one of the same arms: on a different set of seeds that overlaps with its own,
    or by other looks. Seeds seen without a p-value may be extended. judged: whether the earlier one had a p-value."""
    # planned looks choose no seeds: only other looks repeat them
    if claim.seeds is None:
        return other.seeds is None and other.looks != claim.looks and judged
    # a fixed-sample test after looks depends on what these showed
    if other.seeds is None:
        return True
    # before a p-value, seeds may be added but not dropped
    chosen = other.seeds != claim.seeds if judged else not other.seeds <= claim.seeds
    return chosen and bool(other.seeds & claim.seeds)


def corrected(ledger: Ledger, elsewhere: Iterable[LedgerClaim] = ()) -> dict[LedgerClaim, float | None]:
    """The p-value of every valid test ever judged, corrected for all of them: significant below 0.05. elsewhere: as in
    `rounds`."""
    return {
        claim: None if p is None else min(1.0, p / share(number))
        for number, judged in enumerate(rounds(ledger, elsewhere), start=1)
        for claim, p in holm_by_name({claim: each.p for claim, each in judged.items()}).items()
    }


def share(number: int) -> float:
    """s_r of 1-based round r."""
    return FIRST_SHARE if number == 1 else (1 - FIRST_SHARE) / (number * (number - 1))
