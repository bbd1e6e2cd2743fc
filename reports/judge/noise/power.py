"""Power: which differences a number of seeds can detect. Pure arithmetic, for normal differences.

    detectable = δ with P(T > t_crit) = 0.8,  T ~ noncentral t(ν, δ/error),  error = σ √(2/n)

The level is the one that the correction for several arms requires of the smallest p, so power is not overstated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
import scipy  # loads its submodules on first use
from numpy.typing import NDArray

from reports.judge.noise import Floats, Noise

ALPHA = 0.05
FIRST_SHARE = 0.8
"""Share of α that the first judgement of a question may spend; all later ones share the rest."""
POWER = 0.8
MOST_SEEDS = 1000
"""Largest number of seeds, or of further seeds: a question that needs more is hopeless at this size."""
FUTILE = 0.05
"""Chance of being settled below which an arm gets no more seeds."""
FAR = 10
DRAWN = 2.5
"""Degrees of freedom that a well known usual noise is worth."""


def detectable(error: float, freedom: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """The true difference that a t-test at `alpha` detects with probability `power`, given the standard error of its
    estimate.

    Solves power = P(T > t_crit) for T noncentral t with noncentrality δ / error; significance with the wrong sign does
    not count as detection.
    """
    critical = -scipy.special.stdtrit(freedom, alpha / 2)
    return float(scipy.special.nctdtrinc(freedom, 1 - power, critical)) * error


def power_at(difference: float, known: float, error: float, freedom: float, room: float = 0.0) -> float:
    """The probability that a test detects a difference with its sign, if it detects `known` with probability `POWER`.

    room: nats by which other causes than the error widen the test's interval; they are subtracted from differences.
    """
    critical = scipy.special.nctdtrit(freedom, (known - room) / error, 1 - POWER)
    return float(1 - scipy.special.nctdtr(freedom, max(0.0, abs(difference) - room) / error, critical))


def detectable_by(noise: Noise, seeds: int, arms: int, alpha: float = ALPHA) -> float:
    """The difference from the baseline that a study of this size detects with probability `POWER`.

    noise: the noise of one run. Its degrees of freedom, if any, are those of other rows that the study's arms are drawn
    towards (tuning runs, like runs of other studies): with 9 or more the usual noise counts as known.
    """
    # Degrees of freedom with which a t-test has about the power of moderated variances: those of two arms, and up to
    # `DRAWN` of the arms beside them. Fitted to simulations of two to five arms with two to fifteen seeds.
    beside = (arms - 2) + noise.freedom / (seeds - 1)
    freedom = 2 * (seeds - 1) + DRAWN * beside / (beside + 3)
    return detectable(noise.sd * math.sqrt(2 / seeds), freedom, alpha / (arms - 1))


def seeds_for(difference: float, noise: Noise, arms: int, alpha: float = ALPHA) -> int | None:
    """The fewest seeds with which such a study detects `difference`; None if `MOST_SEEDS` are too few."""
    possible = range(2, MOST_SEEDS + 1)
    fewest = bisect_left(possible, True, key=lambda seeds: detectable_by(noise, seeds, arms, alpha) <= difference)
    return possible[fewest] if fewest < len(possible) else None


def seeds_needed(
    difference: float,
    sd: float,
    n: int,
    comparisons: int = 1,
    margin: float | None = None,
    alpha: float = ALPHA,
    freedom: float | None = None,
) -> int | None:
    """Number of seeds beyond `n` that settle a pair with probability 0.8, if its true difference and sd are these.

    sd: standard deviation of the differences of paired seeds, with `freedom` degrees of freedom at n seeds (default:
    n − 1).

    Settled means found to differ or, with a margin, found to differ by no more than it: whichever takes fewer seeds.
    None if even `MOST_SEEDS` more are too few.
    """
    seeds = np.arange(n + 1, n + 1 + MOST_SEEDS)
    grown = seeds - 1 if freedom is None else freedom + (seeds - n)
    enough = difference_power(difference, sd, seeds, alpha / comparisons, grown) >= POWER
    if margin is not None:
        enough |= equivalence_power(difference, sd, seeds, margin, alpha / comparisons, grown) >= POWER
    return int(np.argmax(enough)) + 1 if enough.any() else None


def chance_of_settling(
    value: float,
    error: float,
    freedom: float,
    seeds: int,
    last: int,
    alpha: float,
    margin: float | None = None,
    kept: float = 0.0,
) -> float:
    """Predictive power: the probability that a pair will be found to differ, or to be within ± `margin`, at `last`
    seeds, given its difference and standard error at `seeds` (Spiegelhalter, Freedman and Blackburn 1986).

    With a flat prior the mean of all `last` seeds is distributed about today's with variance error² (1 − seeds/last).
    kept: nats of the last interval's half-width that no seed reduces, as the room for tuning.
    """
    spread = error * math.sqrt(1 - seeds / last)
    grown, final = freedom + last - seeds, error * math.sqrt(seeds / last)
    cdf, quantile = scipy.special.stdtr, scipy.special.stdtrit
    apart = kept - quantile(grown, alpha / 2) * final
    chance = cdf(freedom, (value - apart) / spread) + cdf(freedom, (-value - apart) / spread)
    if margin is not None and (within := margin - kept + quantile(grown, alpha) * final) > 0:
        inside = cdf(freedom, (within - value) / spread) - cdf(freedom, (-within - value) / spread)
        return float(min(1.0, chance + inside))
    return float(chance)


def difference_power(
    difference: float, sd: float, seeds: NDArray[np.int_], alpha: float, freedom: NDArray[Any] | None = None
) -> Floats:
    """P(t-test of `seeds` pairs detects the difference, with its sign), two-sided at `alpha`."""
    return _one_sided(abs(difference) / sd, seeds, alpha / 2, freedom)


def equivalence_power(
    difference: float,
    sd: float,
    seeds: NDArray[np.int_],
    margin: float,
    alpha: float,
    freedom: NDArray[Any] | None = None,
) -> Floats:
    """P(both one-sided t-tests at `alpha` put the difference within ± `margin`), never overstated.

    P(A and B) ≥ P(A) + P(B) − 1, each a noncentral t; the bound is close where it is near 0.8. Phillips 1990
    (doi:10.1007/BF01063556) has the exact form.
    """
    above = _one_sided((margin + difference) / sd, seeds, alpha, freedom)
    below = _one_sided((margin - difference) / sd, seeds, alpha, freedom)
    return np.asarray(np.maximum(above + below - 1, 0.0))


def _one_sided(effect: float, seeds: NDArray[np.int_], alpha: float, freedom: NDArray[Any] | None) -> Floats:
    """P(T > t_crit) for T noncentral t with noncentrality effect·√n.

    The noncentrality is clipped at ± FAR · t_crit, where P is 1 or 0: far beyond, its series does not converge.
    """
    known = seeds - 1 if freedom is None else freedom
    critical = -scipy.special.stdtrit(known, alpha)
    noncentrality = np.clip(effect * np.sqrt(seeds), -FAR * critical, FAR * critical)
    return np.asarray(1 - scipy.special.nctdtr(known, noncentrality, critical))
