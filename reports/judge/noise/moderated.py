"""The noise of runs whose arms may differ in it: moderated variances that let go of an outlier.

Smyth 2004 (doi:10.2202/1544-6115.1027) draws variances with few degrees of freedom towards what is usual; Phipson et
al. 2016 (doi:10.1214/16-AOAS920) let go of those that are unusual. Here, for an arm with d = n − 1,

    V = (w·c + d·s²) / (w + d)     w = d₀ · min(1, P(F > s²/c) / RELEASE) · min(1, P(F < s²/c) / UNUSUAL)²

with w + d degrees of freedom and F ~ F(d, d₀).

c is the geometric mean of the *other* arms' s², each without the bias of its logarithm and weighted by its precision,
and of the noise of like runs if that is known. An arm that is too noisy or too quiet for its own c has little say about
the others.

A difference of means has Welch's error and Satterthwaite's degrees of freedom, less what runs of one seed have in
common (`noise.common_seeds`).

**The loser has to lose by its ordinary runs; the winner answers for all of its runs.** The test that `a` is worse caps
its losses `CAP` standard deviations above their median. A failed run is an infinite loss, so it counts as one at the
cap. The test that `a` is better caps those of `b` and takes `a` as it is: an arm with a failed run is never better.
Since E min(y, cap) ≤ E y, what a capped test finds is true of the means over all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from statistics import fmean

import numpy as np
import scipy  # loads its submodules on first use

from reports.judge.noise import ROUNDING, Noise, Row, SeedLosses
from reports.judge.noise.difference import CommonSeeds, Difference, Side

PRIOR = 9.0
"""d₀. In the recorded studies ln σ varies between arms with a standard deviation of 0.25, about as much as the
logarithm of a standard deviation with 9 degrees of freedom."""
SPREAD = 0.25
"""Variance of ln σ² between the arms of a study."""
HISTORY_SPREAD = 0.5
"""Variance of ln σ² between an arm and like runs of other studies."""
RELEASE = 0.8
"""P(F) below which an arm is drawn less towards the others."""
UNUSUAL = 0.02
"""P(F) below which an arm has less say about the noise of others, and below which it is too quiet to be drawn up."""
LEAST_SAY = 1e-3
"""Smallest factor on the say of an unusual arm: if no other arm is known, it decides."""
FEWEST = 4
"""Degrees of freedom from which the noise of other studies is known well enough."""
CAP = 4.0
"""Standard deviations from the median at which a losing arm's losses are capped, and beyond which a run is odd."""


@dataclass(frozen=True)
class Odd:
    """A run far from the others of its arm: `above` their median in nats, negative below."""

    seed: Hashable
    above: float

    @property
    def side(self) -> str:
        """`above` or `below` the other seeds."""
        return "above" if self.above > 0 else "below"


@dataclass(frozen=True)
class _Votes:
    """Logarithms of the rows' variances with the weights of their geometric mean, and the noise of like runs."""

    logs: Mapping[Row, float]
    weights: Mapping[Row, float]
    history: Noise | None

    @cached_property
    def _sums(self) -> tuple[float, float]:
        past = [] if self.history is None else [(2 * math.log(self.history.sd), 1 / HISTORY_SPREAD)]
        all_ = [*((self.logs[row], weight) for row, weight in self.weights.items()), *past]
        return math.fsum(log * weight for log, weight in all_), math.fsum(weight for _, weight in all_)

    def usual(self, without: Row | None = None) -> float | None:
        """Geometric mean over the history and all rows but `without`; None if nothing is left."""
        weight = self.weights.get(without, 0.0)
        if len(self.weights) + (self.history is not None) <= (without in self.weights):
            return None
        log_sum, total = self._sums
        return math.exp((log_sum - weight * self.logs.get(without, 0.0)) / (total - weight))


@dataclass(frozen=True)
class NoiseModel:
    """Noise of all runs of a study.

    rows: the arms that are compared; runs of one seed may have some of it in common. beside: other runs (of tuning,
    say) that tell of the usual noise. history: noise of one like run of other studies.
    """

    rows: SeedLosses
    beside: SeedLosses = field(default_factory=dict)
    history: Noise | None = None

    @cached_property
    def _scatter(self) -> Mapping[Row, tuple[float, int]]:
        """s² and d of each row that scatters."""
        found = {row: _square(self.finished(row).values()) for row in (*self.rows, *self.beside)}
        return {row: (square, d) for row, (square, d) in found.items() if square > ROUNDING**2}

    @cached_property
    def _votes(self) -> _Votes:
        """Say of each row in the noise of others: its precision, less if it is loud."""
        logs = {row: math.log(square) - _log_moments(d)[0] for row, (square, d) in self._scatter.items()}
        precise = {row: 1 / (_log_moments(d)[1] + SPREAD) for row, (_, d) in self._scatter.items()}
        known = _Votes(logs, precise, self.history)

        def say(row: Row) -> float:
            usual, (square, d) = known.usual(row), self._scatter[row]
            return 1.0 if usual is None else min(1.0, max(LEAST_SAY, min(_tails(square / usual, d)) / UNUSUAL))

        return _Votes(logs, {row: vote * say(row) for row, vote in precise.items()}, self.history)

    def finished(self, row: Row) -> dict[Hashable, float]:
        """Losses of a row's runs that did not fail."""
        losses = self.rows.get(row) or self.beside.get(row, {})
        return {seed: loss for seed, loss in losses.items() if math.isfinite(loss)}

    def centre(self, row: Row) -> float | None:
        """c: the variance of a run that all other rows let one expect of this one; None without any."""
        return self._votes.usual(without=row)

    @cached_property
    def typical(self) -> Noise | None:
        """Noise of one run of a typical row; None if it is unknown."""
        variance = self._votes.usual()
        if variance is None:
            return None
        return Noise(math.sqrt(variance), sum(d for _, d in self._scatter.values()))

    @cached_property
    def run(self) -> Noise | None:
        """Noise of one run of a typical row, apart from what common seeds share; None if it is unknown."""
        if self.typical is None:
            return None
        share, _ = self._seeds.share(self.typical.freedom)
        return Noise(self.typical.sd * math.sqrt(share), self.typical.freedom) if share > 0 else None

    @cached_property
    def _seeds(self) -> CommonSeeds:
        """Noise that runs of one seed have in common."""
        found = []
        for row in self.rows:
            capped = self._capped(row)
            variance, d = self.moderated(row, capped.values()) if math.inf not in capped.values() else (0.0, 0.0)
            if variance and d:
                mean, sd = fmean(capped.values()), math.sqrt(variance)
                found.append({seed: (loss - mean) / sd for seed, loss in capped.items()})
        return CommonSeeds.of(found)

    def louder(self, row: Row) -> float:
        """Standard deviation of a row relative to a typical one's, 1 if it is lower or unknown."""
        variance, _ = self.moderated(row)
        return max(1.0, math.sqrt(variance) / self.typical.sd) if self.typical else 1.0

    def moderated(self, row: Row, losses: Collection[float] | None = None) -> tuple[float, float]:
        """V and its degrees of freedom, of these losses of a row or of all that did not fail."""
        (square, d), centre = _square(self.finished(row).values() if losses is None else losses), self.centre(row)
        if centre is None or not d:
            return square, d
        above, below = _tails(square / centre, d)
        weight = PRIOR * min(1.0, above / RELEASE) * min(1.0, below / UNUSUAL) ** 2
        return (weight * centre + d * square) / (weight + d), weight + d

    @cached_property
    def odd(self) -> Mapping[Row, Odd]:
        """The run of a row with four or more that is furthest from their median: beyond `CAP` standard deviations, by
        the noise of other rows and by that of the row's other runs."""
        found = {}
        for row in self.rows:
            losses, centre = self.finished(row), self.centre(row)
            if len(losses) > 3 and centre is not None:
                median = float(np.median(list(losses.values())))
                seed = max(losses, key=lambda seed: abs(losses[seed] - median))
                rest, _ = _square([loss for other, loss in losses.items() if other != seed])
                if abs(losses[seed] - median) > CAP * math.sqrt(max(centre, rest)):
                    found[row] = Odd(seed, losses[seed] - median)
        return found

    def difference(self, arm: Row, base: Row) -> Difference | None:
        """Mean of `arm` − mean of `base` over the runs that did not fail, with its noise.

        None with fewer than two of these in either, without scatter, and if the arms have the same loss at every seed:
        then they compute the same.
        """
        own, others = self.finished(arm), self.finished(base)
        if min(len(own), len(others)) < 2:
            return None
        pairs = [(loss, self.rows[base].get(seed, math.nan)) for seed, loss in self.rows[arm].items()]
        if self.rows[arm].keys() == self.rows[base].keys() and all(a == b or abs(a - b) <= ROUNDING for a, b in pairs):
            return None
        worse = self._side(arm, self._capped(arm), base, self.rows[base])
        better = self._side(arm, self.rows[arm], base, self._capped(base))
        if worse is None or better is None:
            return None
        return Difference(fmean(own.values()) - fmean(others.values()), worse, better)

    def _capped(self, row: Row) -> Mapping[Hashable, float]:
        """Losses of a row in the test that it is worse."""
        centre, finished = self.centre(row), self.finished(row)
        if centre is None or not finished:
            return self.rows[row]
        cap = float(np.median(list(finished.values()))) + CAP * math.sqrt(centre)
        return {seed: min(loss, cap) for seed, loss in self.rows[row].items()}

    def _side(
        self, arm: Row, own: Mapping[Hashable, float], base: Row, others: Mapping[Hashable, float]
    ) -> Side | None:
        """Difference of the means of these losses with its error; None if nothing scatters."""
        failed = [sign for sign, losses in ((1, own), (-1, others)) if math.inf in losses.values()]
        if failed:
            return Side(sum(failed) * math.inf if sum(failed) else math.nan, 1.0, 1.0)
        (square, d), (base_square, base_d) = (
            self.moderated(row, losses.values()) for row, losses in ((arm, own), (base, others))
        )
        n, base_n, alone = len(own), len(others), square + base_square
        if not alone:
            return None
        welch = _satterthwaite((square / n, d), (base_square / base_n, base_d))
        gaps = [own[seed] - others[seed] for seed in own.keys() & others.keys()]
        # where every seed gives the same difference, to the digits of its losses, it is judged as if unpaired
        share, freedom = self._seeds.share(welch, _square(gaps)[0] / alone or 1.0)
        # V_a/n_a + V_b/n_b − 2·Cov·m/(n_a·n_b), where 2·Cov = (1 − share)·(V_a + V_b)
        paired = len(gaps) / (n * base_n) * alone
        variance = square / n + base_square / base_n - (1 - share) * paired
        if not variance > 0:
            return None
        by_seed = share * paired / variance
        gap = fmean(own.values()) - fmean(others.values())
        return Side(gap, math.sqrt(variance), by_seed * freedom + (1 - by_seed) * welch)


def _satterthwaite(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each with its own."""
    total = sum(part for part, _ in parts)
    return total**2 / sum(part**2 / d for part, d in parts if part) if total else 1.0


def noise_of_studies(tables: Iterable[SeedLosses]) -> Noise | None:
    """Noise of one run of several studies, by their degrees of freedom; None with fewer than `FEWEST` in all."""
    known = [noise for table in tables if (noise := NoiseModel(table).run) is not None]
    freedom = sum(noise.freedom for noise in known)
    if freedom < FEWEST:
        return None
    return Noise(math.exp(sum(noise.freedom * math.log(noise.sd) for noise in known) / freedom), freedom)


def _square(losses: Collection[float]) -> tuple[float, int]:
    """Variance of losses and its degrees of freedom, zero for a single loss and for differences of rounding."""
    if len(losses) < 2:
        return 0.0, 0
    values = np.fromiter(losses, np.float64)
    return 0.0 if np.ptp(values) <= ROUNDING else float(values.var(ddof=1)), len(losses) - 1


def _tails(ratio: float, d: int) -> tuple[float, float]:
    """P(F(d, d₀) > ratio) and P(F(d, d₀) < ratio)."""
    return float(scipy.special.fdtrc(d, PRIOR, ratio)), float(scipy.special.fdtr(d, PRIOR, ratio))


@lru_cache
def _log_moments(d: int) -> tuple[float, float]:
    """E ln s² − ln σ², and Var ln s²."""
    return float(scipy.special.digamma(d / 2)) - math.log(d / 2), float(scipy.special.polygamma(1, d / 2))
