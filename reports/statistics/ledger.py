"""Everything that was ever judged for a question, and what a p-value is worth after all of it. Pure.

A test is one arm against one baseline on one set of seeds. The tests that appear for the first time in one judgement of
the study are a round. Round r may spend the share s_r of α = 0.05, and Holm's correction runs over its tests alone:

    s_1 = 0.8        s_r = 0.2 / (r·(r − 1)), r ≥ 2        Σ s_r = 1        corrected p = Holm(p in the round) / s_r

Within a round Holm errs with probability at most α·s_r, and by the union bound α holds over all rounds that there will
ever be (alpha spending, as in Foster and Stine 2008, doi:10.1111/j.1467-9868.2007.00643.x). So:

- arms that were dropped still count: they stay in their round;
- arms that are added once results are known are a round of their own, and a question that goes on until something
  wins keeps its error rate. Holm over all arms so far would not: when k arms come one by one, it errs in
  α·(1 + 1/2 + … + 1/k) of studies;
- a fixed-sample test that reuses seeds on which its arm was judged before is left out. It is repeated because of what
  those seeds showed, and no division of α makes good for that. Fresh seeds are a new test in a new round; a test that
  is valid at any number of seeds (`sequential`) remains the same test, with a new p;
- later arms never take back a verdict.

The price is a first round at 0.04. What is judged by the hundreds belongs to `online_fdr` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.statistics.estimates import holm_by_name

FIRST_SHARE = 0.8


@dataclass(frozen=True)
class Contrast:
    """Two arms by digests of all that decides their losses but the seed, so that renaming makes no new arm."""

    arm: str
    baseline: str


@dataclass(frozen=True)
class Claim:
    """What one test is of. `seeds` is None where the p-value is valid at any number of seeds."""

    contrast: Contrast
    seeds: frozenset[int] | None


@dataclass(frozen=True)
class Judged:
    """A test with its p-value, None where there is none yet."""

    claim: Claim
    p: float | None


Ledger = Sequence[Iterable[Judged]]
"""All judgements of one question, the oldest first; each has every test that it looked at."""


def rounds(ledger: Ledger) -> tuple[dict[Claim, float | None], ...]:
    """The tests by the judgement that had them first, each with its latest valid p-value."""
    found: list[dict[Claim, float | None]] = []
    home: dict[Claim, dict[Claim, float | None]] = {}
    for judgement in ledger:
        known = set(home)
        new: dict[Claim, float | None] = {}
        for claim, p in ((judged.claim, judged.p) for judged in judgement if not reuses_seeds(judged.claim, known)):
            own = home.setdefault(claim, new)
            own[claim] = p if p is not None else own.get(claim)
        if new:
            found.append(new)
    return tuple(found)


def reuses_seeds(claim: Claim, known: Iterable[Claim]) -> bool:
    """Whether a fixed-sample test is a repetition: its arm was judged before on some of its seeds, not all the same."""
    earlier = [other for other in known if other.contrast == claim.contrast and other != claim]
    return claim.seeds is not None and any(other.seeds is None or other.seeds & claim.seeds for other in earlier)


def corrected(ledger: Ledger) -> dict[Claim, float | None]:
    """The p-value of every valid test ever judged, corrected for all of them: significant below 0.05."""
    return {
        claim: None if p is None else min(1.0, p / share(number))
        for number, claims in enumerate(rounds(ledger), start=1)
        for claim, p in holm_by_name(claims).items()
    }


def share(number: int) -> float:
    """s_r of 1-based round r."""
    return FIRST_SHARE if number == 1 else (1 - FIRST_SHARE) / (number * (number - 1))
