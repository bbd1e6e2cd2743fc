"""The smallest detectable difference, and its uncertainty. Pure.

    detectable = c(ν, α, power) · s        s²·ν/σ² ~ χ²(ν)

c is that of `noise.power.detectable`. The sd of three paired differences is between 0.16 and 1.92 times the true
one in 95 % of studies. The detectable difference inherits that: its true value is between 0.52 and 6.3 times the
estimate. Assumes normal differences.
"""

from __future__ import annotations

import math

from scipy import special  # scipy.stats takes seconds to load

from reports.judge.noise.power import ALPHA, POWER, detectable
from reports.judge.statistics.interval import Interval


def sd_interval(sd: float, n: float, alpha: float = ALPHA) -> Interval:
    """Interval of the true standard deviation, from the sd of n values: s · √((n − 1) / χ²(n − 1)), equal tails."""
    low, high = (sd * math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (alpha / 2, 1 - alpha / 2))
    return Interval(sd, low, high)


def detectable_effect(error: float, freedom: float, alpha: float = ALPHA, power: float = POWER) -> Interval:
    """Effect that a t-test at `alpha` detects with probability `power`, with its 95 % interval. error: the estimate's
    standard error."""
    per_error = detectable(1.0, freedom, alpha, power)
    spread = sd_interval(error, freedom + 1)
    return Interval(per_error * spread.value, per_error * spread.low, per_error * spread.high)
