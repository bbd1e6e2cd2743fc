"""Outcome of a claim at the size of the models that were tested.

A result contradicts or confirms a claim only within the sizes of its source, a factor of `NEAR` either way. Beyond
these, or if they are unknown, it agrees or differs at its own size, which is a finding and no judgement of the source.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.judge.sentences import prefixed_range
from reports.judge.verdicts import Outcome

NEAR = 4.0
"""Factor between two model sizes up to which a result at one speaks about the other."""
BEYOND: dict[Outcome, Outcome] = {"holds": "agrees", "does not hold": "differs"}
"""Outcomes outside the sizes of the source, by the outcome within them."""


def is_near(parameters: Sequence[float], sizes: Sequence[float]) -> bool:
    """Whether two ranges of model sizes, given by any of their members, lie within a factor of `NEAR`."""
    return bool(sizes) and max(parameters) * NEAR >= min(sizes) and min(parameters) <= max(sizes) * NEAR


def outcome_at(found: Outcome, parameters: Sequence[float], sizes: Sequence[float]) -> Outcome:
    """The outcome at these sizes of our models. sizes: of the claim's source; empty if unknown.

    Outcomes recorded with other sizes, or without any, may be given too.
    """
    within = {beyond: near for near, beyond in BEYOND.items()}.get(found, found)
    return within if is_near(parameters, sizes) else BEYOND.get(within, within)


def distance(found: Outcome, parameters: Sequence[float], sizes: Sequence[float]) -> str:
    """` at 56 k parameters (published at 220 M)`, to follow *agrees* or *differs*; empty for other outcomes."""
    if found not in BEYOND.values():
        return ""
    published = f" (published at {prefixed_range(sizes)})" if sizes else ""
    return f" at {prefixed_range(parameters)} parameters{published}"
