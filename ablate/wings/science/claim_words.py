"""Outcomes of claims in words."""

from __future__ import annotations

import math

from ablate.wings.results.document import NEAR
from ablate.wings.science.judging_claims import JudgedClaim
from ablate.wings.science.stated import origin, statement
from reports.judge.statistics.estimates import Estimate
from reports.page.wording import words
from store.documents.claims import COSTS, LOSS

INTRODUCTION = (
    "Stated in the study before it ran, unless marked otherwise. A claim holds or does not hold within a factor of"
    f" {NEAR:g} of the sizes of its source; at other sizes, or if these are unknown, a result agrees or differs at its"
    " own. “Cannot tell” contradicts nothing."
)


def line(found: JudgedClaim) -> str:
    """A claim and its outcome on one line, for a terminal."""
    said = ", ".join(filter(None, (measured(found), could_see(found))))
    after = f" ({said})" if said else ""
    source = f" [{origin(found.claim)}]" if origin(found.claim) else ""
    outcome = f"{found.told}{after}, {found.reason}; {stated(found)}"
    return f"Claim: {statement(found.claim)}{source}: {outcome}."


def stated(found: JudgedClaim) -> str:
    """`stated 2026-11-25`, with a note if the claim was edited after a result."""
    return f"stated {found.claim.planned}" + ", edited after a result" * found.claim.edited


def measured(found: JudgedClaim) -> str:
    """The effect and its interval, in the unit of the measure."""
    if found.effect is None:
        return ""
    if found.claim.measure in COSTS:
        return ratio(found.effect)
    said = words.interval(found.effect)
    return said if found.claim.measure == LOSS else said.removesuffix(" nats")


def ratio(found: Estimate) -> str:
    """`0.97× (0.95 to 0.99)`, or `0.125×` if exact."""
    if found.sd is None or found.low is None or found.high is None:
        return f"{found.mean:.3g}×"
    digits = words.decimals(found.half_width)
    return f"{found.mean:.{digits}f}× ({found.low:.{digits}f} to {found.high:.{digits}f})"


def could_see(found: JudgedClaim) -> str:
    """`smallest detectable difference: 0.04 nats`, if the study cannot tell."""
    if found.seen is None or found.outcome != "cannot tell" or not math.isfinite(found.seen):
        return ""
    if found.claim.measure in COSTS:
        return f"smallest detectable factor: {found.seen:.3g}"
    return f"smallest detectable difference: {found.seen:.2g}{' nats' * (found.claim.measure == LOSS)}"
