"""Budgets in seconds: what an error of the measured step times may be worth in nats. Pure.

All seeds of an arm get the steps that its measured step time leaves room for, so an error of that time is in no
scatter over seeds. A step time that is wrong by ε (of its logarithm) changes the number of steps by that share, and the
loss by about ε·|dL/d ln steps|. The slope is that of the arm's validation curve over its second half: under a decaying
rate that is steeper than what a longer schedule would gain, so the error is overstated rather than understated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean

import numpy as np
from scipy import special  # scipy.stats takes seconds to load

from reports.findings.judging import Pair
from reports.reading.collected import Collected
from reports.reading.curves import lines_of
from reports.statistics.estimates import ALPHA

UNKNOWN = (
    "the budget is in seconds, and the error of the step times behind it is not known; running the study again "
    "measures them"
)


def step_time_errors(data: Collected) -> Mapping[Pair, float]:
    """Standard error in nats of each pair's difference; infinite where it is not known, empty for other budgets."""
    if data.study.budget.seconds is None:
        return {}
    errors = {}
    for arm in data.study.arms:
        processes, relative = arm.step_time_processes or 0, math.inf  # standard error of ln step time
        if arm.step_time_error is not None and processes >= 2:
            # larger where few processes tell it: times Student's quantile over the normal
            student = special.stdtrit(processes - 1, ALPHA / 2)
            relative = arm.step_time_error * float(student / special.ndtri(ALPHA / 2))
        # |dL/d ln steps| over the second half of the arm's runs
        slopes = []
        for _, (steps, losses) in lines_of(data, arm.name, "validation_loss"):
            half = int(np.searchsorted(steps, steps[-1] / 2))
            if 0 < steps[half] < steps[-1]:
                slopes.append(abs(float(losses[half] - losses[-1])) / math.log(float(steps[-1] / steps[half])))
        errors[arm.name] = relative * (fmean(slopes) if slopes else math.inf)
    found = {}
    for arm, base in data.study.pairs:
        shared = arm.calibration is not None and arm.calibration == base.calibration  # one step time, whatever it is
        found[arm.name, base.name] = 0.0 if shared else math.hypot(errors[arm.name], errors[base.name])
    return found
