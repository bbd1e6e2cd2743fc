"""Effects of many choices from one two-level design, every run of which informs every effect. Pure.

    effect = mean(runs at +) − mean(runs at −)        SE = 2·s / √(N·n), N runs of n seeds each
    s² = Σ (y_rs − ȳ_r − ȳ_s + ȳ)² / ((N − 1)(n − 1))

All runs have the same seeds, which are blocks: what a seed does to all runs cancels. Assumes normal noise, alike in all
runs. An effect stands for the sum of all that it is aliased with.

p-values are corrected by Holm, or by Benjamini and Hochberg 1995 where a share of false discoveries is acceptable.
Intervals agree with either: those of `simultaneous` with Holm, and, with R discoveries among m effects, those at
confidence 1 − R·α/m with Benjamini–Hochberg, whose false-coverage rate is α (Benjamini and Yekutieli 2005,
doi:10.1198/016214504000001907).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from reports.statistics.estimates import ALPHA, Floats, holm
from reports.statistics.factorial import Design, Effect
from reports.statistics.interval import Interval
from reports.statistics.simultaneous import Evidence, difference_intervals

Correction = Literal["holm", "benjamini_hochberg"]


@dataclass(frozen=True)
class Estimated:
    """One effect, from the level −1 to 1, with all of at most two factors that it may be instead."""

    effect: Effect
    aliases: tuple[Effect, ...]
    interval: Interval
    p: float
    p_corrected: float


def screen(
    design: Design,
    losses: ArrayLike,
    interactions: Sequence[Effect] = (),
    correction: Correction = "holm",
    alpha: float = ALPHA,
) -> tuple[Estimated, ...]:
    """Main effects and these interactions, from losses (runs, seeds) in the order of the design, two seeds or more.

    Raises ValueError where two of the effects are aliased with each other.
    """
    effects = [*((factor,) for factor in design.factors), *interactions]
    _refuse_aliased(design, effects)
    values = np.asarray(losses, dtype=np.float64)
    tests = [_evidence(design.contrast(effect), values) for effect in effects]
    intervals = difference_intervals(tests, alpha) if correction == "holm" else _discovery_intervals(tests, alpha)
    p_values = [test.p for test in tests]
    corrected = holm(p_values) if correction == "holm" else tuple(stats.false_discovery_control(p_values).tolist())
    return tuple(
        Estimated(effect, design.aliases(effect), interval, test.p, p)
        for effect, interval, test, p in zip(effects, intervals, tests, corrected, strict=True)
    )


def _refuse_aliased(design: Design, effects: Sequence[Effect]) -> None:
    for effect in effects:
        same = set(design.aliases(effect, len(design.factors))) & set(effects)
        if same:
            raise ValueError(f"{'×'.join(effect)} and {'×'.join(min(same))} are aliased: no run tells them apart")


def _evidence(contrast: Floats, losses: Floats) -> Evidence:
    runs, seeds = losses.shape
    freedom = (runs - 1) * (seeds - 1)
    value = 2 * float(np.mean(contrast @ losses)) / runs
    left = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0) + losses.mean()
    error = 2 * float(np.sqrt(np.square(left).sum() / freedom / losses.size))

    def interval(level: float) -> tuple[float, float]:
        half = error * float(stats.t.isf(level / 2, freedom))
        return value - half, value + half

    return Evidence(value, 2 * float(stats.t.sf(abs(value) / error, freedom)), interval)


def _discovery_intervals(tests: Sequence[Evidence], alpha: float) -> tuple[Interval, ...]:
    """Those that exclude zero are the discoveries: Benjamini and Hochberg reject all p ≤ R·α/m, and no other."""
    found = int(np.sum(stats.false_discovery_control([test.p for test in tests]) < alpha))
    level = max(found, 1) * alpha / len(tests)
    return tuple(Interval(test.value, *test.interval(level)) for test in tests)
