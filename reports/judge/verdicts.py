"""Verdicts on arms and outcomes of claims: the one place where evidence becomes a verdict."""

from __future__ import annotations

from typing import Literal, TypeAlias

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

Outcome: TypeAlias = Literal["holds", "does not hold", "cannot tell", "not tested"]
"""Outcome of a claim."""


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
