"""Effective compute: the factor by which the baseline's compute would have to grow to reach an arm's losses. Pure.

    L_arm(C) = L(f·C)        L(C) = E + A·C^(−b), the baseline's curve        f: effective compute at equal FLOPs

One f over all budgets of an arm is fitted together with E, A and b, to the baseline's mean losses and to the arm's
differences from the baseline at each budget. So noise that both share there, from data or a seed, cancels, and f = 1
fits as well as no difference does. A loss without a run of the baseline at its budget is fitted as it is. With S the
least squares over the noise,

    interval of f       where the least S with that f is below S_min + F(1 − α; 1, ν)
    p of f = 1          S(f = 1) − S_min against F(1, ν)
    trend               f·(C / C_last)^s: the advantage shrinks or grows where s = 0 is rejected

A few budgets do not determine a curve with three parameters, only its fall between them. So b counts as known within a
factor, ln b = ln 0.2 ± 0.5, from which more budgets can move it; f then has room for a bend that is not seen.

Noise is a standard deviation relative to the loss, the same at all budgets: that of runs which differ in their seed
alone; else what the differences leave beside each arm's f and its trend (without it, if little is left) and what all
arms share at a budget; else what the caller knows, which also counts as `HISTORY_FREEDOM` runs beside the first two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np
import scipy  # loads its submodules on first use
from scipy import special  # scipy.stats takes seconds to load

from ablate.wings.ladders.scaling_law import LawPoints, least
from reports.judge.noise import HISTORY_FREEDOM, ROUNDING
from reports.judge.noise.difference import TOGETHER, CommonSeeds
from reports.judge.statistics.estimates import Floats, Interval, holm
from reports.judge.statistics.simultaneous import Evidence, difference_intervals
from reports.judge.verdicts import ALPHA, Verdict, verdict_of

EXPONENT, EXPONENT_ERROR = 0.2, 0.5
"""What is known of b beforehand, as the mean and standard deviation of its logarithm."""
EXPONENTS = np.geomspace(0.05, 0.7, 80)
KNOWN = ((np.log(EXPONENTS) - math.log(EXPONENT)) / EXPONENT_ERROR) ** 2
LIKE, EXACT = 1e-3, 1e-4
"""A noise that only weighs points against each other, and the share of it that an exact difference has."""
FEWEST = 4
"""Degrees of freedom from which an arm and the baseline have a noise of their own, apart from that of all arms; and
from which a misfit is what is left beside trends."""


@dataclass(frozen=True)
class Budget:
    """Finished losses by seed of one arm at one budget. Arms are compared at budgets of one name."""

    name: str
    flops: float
    losses: Mapping[Hashable, float]

    @property
    def mean(self) -> float:
        return fmean(self.losses.values())


@dataclass(frozen=True)
class CurveNoise:
    """Standard deviation of one run relative to its loss, apart from what runs of one seed have in common; its degrees
    of freedom, and where it is from, in words."""

    sd: float
    freedom: float
    origin: str
    share: float = 1.0
    """Part of the variance of a difference that runs of one seed do not have in common."""


@dataclass(frozen=True)
class EffectiveCompute:
    """An arm's effective compute. An end of an interval is 0 or infinite where it is beyond the curve.

    factor, p, verdict: over all budgets, corrected over the arms. by_budget: FLOPs and effective compute at each budget
    alone, uncorrected. trend: the factor by which effective compute changes with tenfold compute, and the p of no
    change, corrected over the arms. reason: why there is no factor.
    """

    arm: str
    budgets: int
    factor: Interval | None = None
    p: float | None = None
    verdict: Verdict = "cannot tell"
    noise: CurveNoise | None = None
    by_budget: tuple[tuple[float, Interval], ...] = ()
    trend: tuple[Interval, float] | None = None
    reason: str = ""

    @property
    def changes(self) -> str:
        """`shrinks` or `grows`, if its advantage or disadvantage does with compute; else empty."""
        if self.trend is None or self.factor is None or self.trend[1] >= ALPHA:
            return ""
        return "shrinks" if (self.trend[0].value < 1) == (self.factor.value > 1) else "grows"


def effective_compute(
    arms: Mapping[str, Sequence[Budget]], baseline: str, sigma: float | None = None
) -> tuple[EffectiveCompute, ...]:
    """Effective compute of every arm but the baseline, corrected over the arms.

    sigma: standard deviation of one run in nats, if it is known from like runs.
    """
    arms = {name: sorted((each for each in of if each.losses), key=lambda one: one.flops) for name, of in arms.items()}
    curve = arms[baseline]
    found: dict[str, EffectiveCompute] = {}
    tests: dict[str, Evidence] = {}
    for name, of in arms.items():
        if name == baseline:
            continue
        reason = no_curve(curve) or ("" if of else f"no run of {name} has a finite loss")
        noise = None if reason else noise_of(arms, name, baseline, sigma)
        if noise is None:
            reason = reason or "the noise is unknown: it needs a second seed or budget, or a known sigma"
            found[name] = EffectiveCompute(name, len(of), reason=reason)
            continue
        shifted = Shifted.of(curve, of, noise)
        tests[name] = Evidence(shifted.best[1], shifted.p, shifted.ends)
        by_budget = tuple((each.flops, exp(shifted.only(place).interval())) for place, each in enumerate(of))
        beside = noise_of(arms, name, baseline, sigma, trend=True)
        trend = Shifted.of(curve, of, beside).trend() if beside else None
        found[name] = EffectiveCompute(name, len(of), noise=noise, by_budget=by_budget, trend=trend)
    corrected, intervals = holm([test.p for test in tests.values()]), difference_intervals(list(tests.values()))
    trends = {name: each.trend for name, each in found.items() if each.trend}
    for (name, trend), p in zip(trends.items(), holm([p for _, p in trends.values()]), strict=True):
        found[name] = replace(found[name], trend=(trend[0], p))
    for (name, test), p, ends in zip(tests.items(), corrected, intervals, strict=True):
        found[name] = replace(found[name], factor=exp(ends), p=p, verdict=verdict_of(-test.value, p))
    return tuple(found.values())


def no_curve(curve: Sequence[Budget]) -> str:
    """Reason why a baseline's budgets, smallest first, are no curve; empty if they are one."""
    if len({each.flops for each in curve}) < 2:
        return "the baseline has a single budget, and effective compute needs two or more"
    if curve[-1].mean >= curve[0].mean:
        return "the baseline's loss does not fall with compute"
    return ""


def worth(curve: Sequence[Budget], nats: float, relative_noise: float = LIKE) -> Interval | None:
    """Effective compute that a loss lower by `nats` is worth at the baseline's largest budget, with the interval that
    its curve leaves; None without a curve."""
    curve = sorted(curve, key=lambda each: each.flops)
    if no_curve(curve):
        return None
    last = curve[-1]
    lower = Budget(last.name, last.flops, {seed: loss - nats for seed, loss in last.losses.items()})
    return exp(Shifted.of(curve, [lower], CurveNoise(relative_noise, 1e6, "", share=EXACT)).interval())


def noise_of(
    arms: Mapping[str, Sequence[Budget]], arm: str, baseline: str, sigma: float | None = None, trend: bool = False
) -> CurveNoise | None:
    """Noise of an arm and the baseline; None if it is unknown. trend: beside a trend of effective compute."""
    square, freedom = _replicates([arms[arm], arms[baseline]])
    if freedom < FEWEST:
        square, freedom = _replicates(arms.values())
    origin, common = "runs that differ in their seed", freedom > 0
    if not freedom:
        square, freedom = _misfit(arms, baseline, trend=True)  # which an arm whose advantage shrinks does not enlarge
        if freedom < FEWEST and not trend:
            square, freedom = _misfit(arms, baseline, trend=False)
        origin = "the misfit of the joint curve"
    if sigma is not None:
        relative = sigma / fmean(each.mean for each in arms[baseline])
        origin = f"{origin} and the given sigma" if freedom else "the given sigma"
        square = (freedom * square + HISTORY_FREEDOM * relative**2) / (freedom + HISTORY_FREEDOM)
        freedom += HISTORY_FREEDOM
    if not freedom or math.sqrt(square) <= ROUNDING:
        return None
    share, freedom = _share(arms[arm], arms[baseline], square, freedom) if common else (1.0, freedom)
    return CurveNoise(math.sqrt(square), freedom, origin, share)


def _replicates(arms: Iterable[Sequence[Budget]]) -> tuple[float, float]:
    """Pooled variance of relative losses over seeds, and its degrees of freedom."""
    cells = [np.array(list(each.losses.values())) / each.mean for of in arms for each in of]
    freedom = sum(len(cell) - 1 for cell in cells)
    return sum(float(cell.var()) * len(cell) for cell in cells) / max(freedom, 1), freedom


def _share(arm: Sequence[Budget], base: Sequence[Budget], square: float, freedom: float) -> tuple[float, float]:
    """Part of the variance of a difference that runs of one seed do not have in common, with degrees of freedom: as
    `CommonSeeds`, over the seeds that both arms have at a budget."""
    between = within = 0.0
    count, by_name = 0, {each.name: each for each in base}
    for own in arm:
        other = by_name.get(own.name)
        if other is not None and (seeds := own.losses.keys() & other.losses.keys()):
            pairs = np.array([(own.losses[seed] / own.mean, other.losses[seed] / other.mean) for seed in seeds])
            between += float(pairs.sum(axis=1).var()) * len(seeds)
            within += float((pairs[:, 0] - pairs[:, 1]).var()) * len(seeds)
            count += len(seeds) - 1
    if not count or not within:
        return 1.0, freedom
    tail = float(special.fdtrc(count, count, between / within))
    common = CommonSeeds(min(1.0, 2 * tail / TOGETHER), min(1.0, 2 * within / (within + between)), count)
    return common.share(freedom, within / count / (2 * square))


def _misfit(arms: Mapping[str, Sequence[Budget]], baseline: str, trend: bool) -> tuple[float, float]:
    """Variance of a run's relative loss beside the baseline's curve with one factor (or a trend of it) per arm and what
    all arms share at a budget, and its degrees of freedom."""
    curve = {each.name: each for each in arms[baseline]}
    points = _points(arms[baseline], CurveNoise(LIKE, 1, ""), origin=math.log(arms[baseline][-1].flops))
    squares, _, scales = points.squares(EXPONENTS)
    best = int((squares + KNOWN).argmin())
    left: dict[str, list[float]] = {name: [0.0] for name in curve}
    lost = 0
    for name, of in arms.items():
        own = [each for each in of if each.name in curve]
        if name == baseline or not own:
            continue
        gaps = _points(own, CurveNoise(LIKE, 1, ""), math.log(arms[baseline][-1].flops), curve)

        def errors(factors: Floats, gaps: LawPoints = gaps) -> Floats:
            """(factors, budgets)"""
            moved = replace(gaps, log_flops=gaps.log_flops + factors[:, None])
            power = np.exp(-EXPONENTS[best] * moved.log_flops) - np.exp(-EXPONENTS[best] * gaps.against)
            return np.asarray((gaps.losses - scales[best] * power) * LIKE / np.sqrt(gaps.variances / 2))

        reach = float(np.ptp(points.log_flops))
        _, factor = least(lambda factors: np.asarray((errors(factors) ** 2).sum(axis=-1)), -reach, reach)
        error = errors(np.array([factor]))[0]
        lost += 1
        if trend and len(own) > 1:
            error = error - np.polynomial.Polynomial.fit(gaps.log_flops, error, 1)(gaps.log_flops)
            lost += 1
        for each, of_it in zip(own, error.tolist(), strict=True):
            left[each.name].append(of_it)
    freedom = sum(len(each) - 1 for each in left.values()) - lost
    if freedom < 1:
        return 0.0, 0
    return sum(float(np.var(each)) * len(each) for each in left.values()) / freedom, freedom


def _points(
    budgets: Sequence[Budget], noise: CurveNoise, origin: float, curve: Mapping[str, Budget] | None = None
) -> LawPoints:
    """Mean losses, or their differences from those of the curve's budget of the same name."""
    rows = []
    for each in budgets:
        base = (curve or {}).get(each.name)
        variance, value, against = 1 / len(each.losses), each.mean, math.inf
        if base is not None:
            both = len(each.losses.keys() & base.losses.keys())
            variance += 1 / len(base.losses) - (1 - noise.share) * 2 * both / (len(each.losses) * len(base.losses))
            value, against = each.mean - base.mean, math.log(base.flops) - origin
        rows.append((math.log(each.flops) - origin, value, variance * (noise.sd * each.mean) ** 2, against))
    return LawPoints(*np.array(rows).T)


@dataclass(frozen=True)
class Shifted:
    """Points of a baseline's curve, and of an arm whose compute counts by a factor."""

    curve: LawPoints
    arm: LawPoints
    freedom: float

    @classmethod
    def of(cls, curve: Sequence[Budget], arm: Sequence[Budget], noise: CurveNoise) -> Shifted:
        """curve: smallest budget first."""
        origin = math.log(curve[-1].flops)
        points = _points(curve, noise, origin)
        if len(curve) > 2:  # what the budgets of the curve miss it by is noise of its points
            misfit = float((points.squares(EXPONENTS)[0] + KNOWN).min()) / (len(curve) - 2)
            points = replace(points, variances=points.variances * max(1.0, misfit))
        return cls(points, _points(arm, noise, origin, {each.name: each for each in curve}), noise.freedom)

    def only(self, place: int) -> Shifted:
        """With one budget of the arm alone."""
        arm = (self.arm.log_flops, self.arm.losses, self.arm.variances, self.arm.against)
        return replace(self, arm=LawPoints(*(each[place : place + 1] for each in arm)))

    @property
    def reach(self) -> float:
        """Largest |ln f| to be told: the range of the curve."""
        return float(np.ptp(self.curve.log_flops))

    def squares(self, factors: Floats, slopes: Floats | float = 0.0) -> Floats:
        """S of the best curve where ln f = factors + slopes·ln(C / C_last). (…) from (…)"""
        arm, curve = self.arm, self.curve
        moved = arm.log_flops + factors[..., None] + np.asarray(slopes)[..., None] * (arm.log_flops - arm.log_flops[-1])
        fixed = np.broadcast_to(curve.log_flops, (*moved.shape[:-1], len(curve.losses)))
        points = LawPoints(
            np.concatenate([fixed, moved], axis=-1)[..., None, :],  # (…, exponents, points)
            np.append(curve.losses, arm.losses),
            np.append(curve.variances, arm.variances),
            np.append(curve.against, arm.against),
        )
        return np.asarray((points.squares(EXPONENTS)[0] + KNOWN).min(axis=-1))

    @cached_property
    def best(self) -> tuple[float, float]:
        """(S_min, ln f)."""
        return least(self.squares, -self.reach, self.reach)

    def interval(self, alpha: float = ALPHA) -> Interval:
        """ln f. An end beyond the curve is infinite."""
        return _profile(self.squares, self.best, self.reach, self._bound(alpha))

    def ends(self, alpha: float) -> tuple[float, float]:
        """Ends of `interval`."""
        found = self.interval(alpha)
        return found.low, found.high

    @property
    def p(self) -> float:
        """p of f = 1."""
        return self._p(float(self.squares(np.zeros(1))[0]) - self.best[0])

    def trend(self) -> tuple[Interval, float] | None:
        """Factor by which f changes with tenfold compute, and the p of none; None for a single budget."""
        width = float(np.ptp(self.arm.log_flops))
        if not width:
            return None

        def squares(slopes: Floats) -> Floats:
            """Least over ln f at the last budget, on successively finer grids."""
            centre, reach = np.zeros((len(slopes), 1)), self.reach
            for _ in range(4):
                factors = centre + reach * np.linspace(-1, 1, 25)  # (slopes, factors)
                found = self.squares(*np.broadcast_arrays(factors, slopes[:, None]))
                centre, reach = np.take_along_axis(factors, found.argmin(axis=1)[:, None], axis=1), reach / 12
            return np.asarray(found.min(axis=1))

        most = self.reach / width
        best = least(squares, -most, most)
        slope = _profile(squares, best, most, self._bound(ALPHA))
        tenfold = Interval(*(each * math.log(10) for each in (slope.value, slope.low, slope.high)))
        return exp(tenfold), self._p(float(squares(np.zeros(1))[0]) - best[0])

    def _bound(self, alpha: float) -> float:
        return float(special.fdtri(1, self.freedom, 1 - alpha))

    def _p(self, excess: float) -> float:
        return float(special.fdtrc(1, self.freedom, max(0.0, excess)))


def _profile(squares: Callable[[Floats], Floats], best: tuple[float, float], most: float, bound: float) -> Interval:
    def excess(value: float) -> float:
        return float(squares(np.array([value]))[0]) - best[0] - bound

    value = best[1]
    low = scipy.optimize.brentq(excess, -most, value) if excess(-most) > 0 else -math.inf
    high = scipy.optimize.brentq(excess, value, most) if excess(most) > 0 else math.inf
    return Interval(value, low, high)


def exp(of: Interval) -> Interval:
    """An interval of a logarithm, as one of the factor."""
    return Interval(*(math.exp(each) for each in (of.value, of.low, of.high)))
