"""Verdicts on arms and outcomes of claims: the one place where evidence becomes a verdict."""

from __future__ import annotations

from typing import Literal, TypeAlias

from store.documents import StudyLook

ALPHA = 0.05

Verdict: TypeAlias = Literal[
    "better",
    "worse",
    "no difference",
    "inconclusive",
    "cannot tell",
    "no verdict",
    "stalled",
    "diverged",
    "baseline",
    "not compared",
]
"""Verdict on an arm, the most informative first."""

Outcome: TypeAlias = Literal["holds", "does not hold", "agrees", "differs", "cannot tell", "not tested"]
"""Outcome of a claim: the first two within the sizes of its source, the next two at other sizes."""


def verdict_of(difference: float, p: float, p_tie: float | None = None) -> Verdict:
    """The rule, from a difference (less is better), and corrected p-values of it and of a tie (None without a margin).

    Significance comes from p, direction from the sign of the difference; the ends of an interval decide nothing, since
    Holm's later steps end intervals at exactly zero. A difference shown to be smaller than the margin is none, whatever
    its sign.
    """
    if p_tie is not None and p_tie < ALPHA:
        return "no difference"
    if p >= ALPHA or not difference:
        return "inconclusive"
    return "worse" if difference > 0 else "better"


# Sequential looks: when a study that adds seeds in rounds tests its results, and the level that each look spends.
#
# Repeating a test until it is significant finds something sooner or later. Here every look k has its own level α_k with
# Σ α_k = 0.05, fixed before the first seed is trained. By the union bound, the probability of any false verdict is at
# most 0.05, however the looks depend on each other and whenever the study stops.

WORTH_A_LOOK = 1.25
"""Smallest factor between the seeds of the last two looks: a closer look would cost more level than it adds data."""


def looks(start: int, cap: int) -> tuple[StudyLook, ...]:
    """Looks at `start` seeds, at about half as many again each time (3, 5, 8, 12, 18 …), and last at `cap`.

    The level is split evenly. A smaller share for the early looks, as is common with hundreds of observations, would
    make them useless: Student's t with two degrees of freedom must exceed 9.9 at α = 0.01, and 22 at 0.002. The price
    is paid at the cap: with looks at 3, 5, 8, 12 and 18 seeds a true difference of one standard deviation is found 91
    times in 100, after 12 seeds on average; one test of 18 seeds finds it 98 times.

    Raises ValueError unless 2 ≤ start ≤ cap: one seed has no scatter.
    """
    if not 2 <= start <= cap:
        raise ValueError(f"needs 2 ≤ first look ≤ cap, not {start} and {cap}")
    counts = [start]
    while counts[-1] < cap:
        counts.append((3 * counts[-1] + 1) // 2)
    early = [count for count in counts if count * WORTH_A_LOOK <= cap]
    seeds = [*early, cap]
    return tuple(StudyLook(seeds=count, alpha=ALPHA / len(seeds)) for count in seeds)
