"""An independent reference for the rule that judges losses: moderated variances, written out run by run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, variance
from typing import Any

from scipy import special, stats

PRIOR, RELEASE, UNUSUAL, LEAST = 9, 0.8, 0.02, 0.001
SPREAD, HISTORY_SPREAD = 0.25, 0.5
TOGETHER, CAP = 0.1, 4

Losses = Mapping[Any, Mapping[Any, float] | Sequence[float | None]]
"""Losses by arm and seed, infinite for a run that failed; None in a list where a run is absent."""
Runs = dict[Any, float]


@dataclass(frozen=True)
class OneSided:
    """A mean difference as one of its tests sees it."""

    mean: float
    error: float
    freedom: float

    def is_less(self, value: float) -> float:
        """P that the difference is less than `value`."""
        return float(stats.t.cdf((value - self.mean) / self.error, self.freedom))


@dataclass(frozen=True)
class Reference:
    """The difference of the means of finished runs, and its two tests; None if a failed run rules one out."""

    mean: float
    worse: OneSided | None
    better: OneSided | None

    @property
    def p(self) -> float:
        return min(1.0, 2 * (self._at_most(0.0) if self.mean > 0 else self._at_least(0.0)))

    def p_within(self, margin: float) -> float:
        """The larger p-value of two one-sided tests."""
        return max(self._at_most(-margin), self._at_least(margin))

    def interval(self, level: float) -> tuple[float, float]:
        low, high = -math.inf, math.inf
        if self.worse is not None:
            low = min(self.mean, self.worse.mean - float(stats.t.isf(level / 2, self.worse.freedom)) * self.worse.error)
        if self.better is not None:
            high = max(
                self.mean, self.better.mean + float(stats.t.isf(level / 2, self.better.freedom)) * self.better.error
            )
        return low, high

    def _at_most(self, value: float) -> float:
        return 1.0 if self.worse is None else self.worse.is_less(value)

    def _at_least(self, value: float) -> float:
        return 1.0 if self.better is None else 1 - self.better.is_less(value)


def moderated(losses: Losses, arm: Any, base: Any, history: float | None = None) -> Reference:
    """The test of two arms of a study.

    history: the standard deviation of like runs of other studies.
    """
    rows = {name: by_seed(of) for name, of in losses.items()}
    own, others = rows[arm], rows[base]
    difference = mean(finished(own)) - mean(finished(others))
    worse = better = None
    if math.inf not in others.values():
        worse = _one_sided(rows, arm, capped(rows, arm, history), base, others, history)
    if math.inf not in own.values():
        better = _one_sided(rows, arm, own, base, capped(rows, base, history), history)
    return Reference(difference, worse, better)


def by_seed(losses: Mapping[Any, float] | Sequence[float | None]) -> Runs:
    if isinstance(losses, Mapping):
        return dict(losses)
    return {seed: loss for seed, loss in enumerate(losses) if loss is not None}


def finished(runs: Runs) -> list[float]:
    return [loss for loss in runs.values() if loss < math.inf]


def usual_variance(rows: Mapping[Any, Runs], name: Any, history: float | None = None) -> float | None:
    """The variance that one expects of an arm that has not run yet: the geometric mean of the others', in which loud
    arms count less."""
    says: dict[Any, float] = {}
    for other, runs in rows.items():
        if _scatters(runs):
            expected = _geometric_mean(rows, other, dict.fromkeys(rows, 1.0), history)
            says[other] = 1.0
            if expected is not None:
                seen, freedom = variance(finished(runs)), len(finished(runs)) - 1
                more = float(stats.f.sf(seen / expected, freedom, PRIOR))
                less = float(stats.f.cdf(seen / expected, freedom, PRIOR))
                says[other] = min(1.0, max(LEAST, min(more, less) / UNUSUAL))
    return _geometric_mean(rows, name, says, history)


def capped(rows: Mapping[Any, Runs], name: Any, history: float | None = None) -> Runs:
    """Runs of an arm, the bad ones no worse than four usual standard deviations above the middle one."""
    usual = usual_variance(rows, name, history)
    if usual is None:
        return rows[name]
    most = median(finished(rows[name])) + CAP * math.sqrt(usual)
    return {seed: most if loss > most else loss for seed, loss in rows[name].items()}


def moderated_variance(seen: float, freedom: int, usual: float | None) -> tuple[float, float]:
    """A variance drawn towards the usual one, unless it is too large for it; with its degrees of freedom."""
    if usual is None:
        return seen, freedom
    weight = PRIOR * min(1.0, float(stats.f.sf(seen / usual, freedom, PRIOR)) / RELEASE)
    weight *= min(1.0, float(stats.f.cdf(seen / usual, freedom, PRIOR)) / UNUSUAL) ** 2
    return (weight * usual + freedom * seen) / (weight + freedom), weight + freedom


def _scatters(runs: Runs) -> bool:
    known = finished(runs)
    return len(known) > 1 and max(known) - min(known) > 1e-8


def _geometric_mean(
    rows: Mapping[Any, Runs], without: Any, says: Mapping[Any, float], history: float | None
) -> float | None:
    logarithms, weights = [], []
    for name, runs in rows.items():
        if name == without or not _scatters(runs):
            continue
        half = (len(finished(runs)) - 1) / 2
        # ln χ²(d)/d has the mean ψ(d/2) − ln(d/2) and the variance ψ′(d/2)
        logarithms.append(math.log(variance(finished(runs))) - float(special.digamma(half)) + math.log(half))
        weights.append(says[name] / (float(special.polygamma(1, half)) + SPREAD))
    if history is not None:
        logarithms.append(math.log(history**2))
        weights.append(1 / HISTORY_SPREAD)
    if not weights:
        return None
    return math.exp(sum(w * x for w, x in zip(weights, logarithms, strict=True)) / sum(weights))


def _one_sided(
    rows: Mapping[Any, Runs], arm: Any, own: Runs, base: Any, others: Runs, history: float | None
) -> OneSided:
    v_a, f_a = _moderated(rows, arm, own, history)
    v_b, f_b = _moderated(rows, base, others, history)
    n_a, n_b = len(own), len(others)
    # Welch and Satterthwaite
    part_a, part_b = v_a / n_a, v_b / n_b
    welch = (part_a + part_b) ** 2 / (part_a**2 / f_a * (part_a > 0) + part_b**2 / f_b * (part_b > 0))
    alone, left, within = shared_by_seeds(rows, history)
    weights = [alone * welch, (1 - alone) * min(within, welch)]
    freedom = sum(weights)
    gaps = [own[seed] - others[seed] for seed in own if seed in others]
    apart = variance(gaps) / (v_a + v_b) if len(gaps) > 1 else 1.0
    share = (weights[0] + weights[1] * max(left, min(1.0, apart))) / freedom
    # Var(mean_a − mean_b) = V_a/n_a + V_b/n_b − 2·Cov·m/(n_a·n_b), where a seed's difference has the variance
    # V_a + V_b − 2·Cov = share·(V_a + V_b)
    common = len([seed for seed in own if seed in others])
    covariance = (1 - share) * (v_a + v_b) / 2
    square = part_a + part_b - 2 * covariance * common / (n_a * n_b)
    of_pairs = share * (v_a + v_b) * common / (n_a * n_b) / square
    gap = sum(own.values()) / n_a - sum(others.values()) / n_b
    return OneSided(gap, math.sqrt(square), of_pairs * freedom + (1 - of_pairs) * welch)


def shared_by_seeds(rows: Mapping[Any, Runs], history: float | None) -> tuple[float, float, int]:
    """An analysis of variance of standardised losses: how surely runs of one seed are as unrelated as any, the share of
    the variance that seeds leave, and its degrees of freedom."""
    by_seed: dict[Any, list[float]] = {}
    for name, runs in rows.items():
        if len(runs) < 2 or not finished(runs):
            continue
        counted = capped(rows, name, history)
        unit = 0.0 if math.inf in counted.values() else math.sqrt(_moderated(rows, name, counted, history)[0])
        if not unit:
            continue
        for seed, loss in counted.items():
            by_seed.setdefault(seed, []).append((loss - mean(counted.values())) / unit)
    groups = [values for values in by_seed.values() if len(values) > 1]
    if not groups:
        return 1.0, 1.0, 0
    count = sum(len(values) for values in groups)
    between_freedom = len(groups) - 1
    within_freedom = count - len(groups) - (max(len(values) for values in groups) - 1)
    if between_freedom < 1 or within_freedom < 1:
        return 1.0, 1.0, 0
    between = sum(len(values) * mean(values) ** 2 for values in groups)
    within = sum((value - mean(values)) ** 2 for values in groups for value in values)
    if not within:
        return 1.0, 1.0, 0
    ratio = (between / between_freedom) / (within / within_freedom)
    alone = min(1.0, 2 * float(stats.f.sf(ratio, between_freedom, within_freedom)) / TOGETHER)
    mean_square = (between + within) / (between_freedom + within_freedom)
    return alone, min(1.0, within / within_freedom / mean_square), within_freedom


def _moderated(rows: Mapping[Any, Runs], name: Any, runs: Runs, history: float | None) -> tuple[float, float]:
    losses = list(runs.values())
    seen = variance(losses) if max(losses) - min(losses) > 1e-8 else 0.0
    return moderated_variance(seen, len(losses) - 1, usual_variance(rows, name, history))
