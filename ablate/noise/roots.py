"""Where a function crosses zero: `scipy.optimize.brentq`, whose package takes as long to load as a report to draw."""

from __future__ import annotations

import math
from collections.abc import Callable

ABSOLUTE, RELATIVE = 2e-12, 2.0**-50
MOST_STEPS = 100


def brentq(function: Callable[[float], float], low: float, high: float, xtol: float = ABSOLUTE) -> float:
    """A root between two places where `function` has different signs, to `xtol` or four units in the last place
    (Brent 1973). The steps are those of scipy, and so is the result, to the last bit.

    Raises ValueError where the signs are the same, RuntimeError where it does not converge.
    """
    before, here, opposite = low, high, 0.0
    f_before, f_here, f_opposite = float(function(low)), float(function(high)), 0.0
    if f_before == 0:
        return before
    if f_here == 0:
        return here
    if (f_before < 0) == (f_here < 0):
        raise ValueError("f(a) and f(b) must have different signs")
    step = last = 0.0
    for _ in range(MOST_STEPS):
        if f_before != 0 and (f_before < 0) != (f_here < 0):  # the root is between the last two places
            opposite, f_opposite = before, f_before
            last = step = here - before
        if abs(f_opposite) < abs(f_here):  # the best place is `here`
            before, here, opposite = here, opposite, here
            f_before, f_here, f_opposite = f_here, f_opposite, f_here
        least, half = (xtol + RELATIVE * abs(here)) / 2, (opposite - here) / 2
        if f_here == 0 or abs(half) < least:
            return here
        tried = math.inf
        if abs(last) > least and abs(f_here) < abs(f_before):
            tried = _step(before, here, opposite, f_before, f_here, f_opposite)
        if 2 * abs(tried) < min(abs(last), 3 * abs(half) - least):
            last, step = step, tried
        else:
            last = step = half
        before, f_before = here, f_here
        here += step if abs(step) > least else least if half > 0 else -least
        f_here = float(function(here))
    raise RuntimeError(f"no root to {xtol:g} after {MOST_STEPS} steps")


def _step(before: float, here: float, opposite: float, f_before: float, f_here: float, f_opposite: float) -> float:
    """To where a line through two places crosses zero, or an inverse parabola through three; infinite for neither."""
    if before == opposite:
        return -f_here * (here - before) / (f_here - f_before)
    slope, far = (f_before - f_here) / (before - here), (f_opposite - f_here) / (opposite - here)
    turn = far * slope * (f_opposite - f_before)
    return -f_here * (f_opposite * far - f_before * slope) / turn if turn else math.inf
