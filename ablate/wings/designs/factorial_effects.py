"""The effects of a factorial design, of which every run informs every effect: half the runs against the others. Pure.

    effect = mean(runs at +) − mean(runs at −)        SE = 2·s / √(N·n), N runs of n seeds each
    s² = Σ (y_rs − ȳ_r − ȳ_s + ȳ)² / ((N − 1)(n − 1))

All runs have the same seeds, which are blocks: a seed's common influence on all runs cancels. Assumes normal noise of
equal variance in all runs. An effect is the sum of all effects that it is aliased with.

If each run is tuned, the error of tuning is the same in all seeds of a run, and s² does not include it. Then the m
effects are judged by the scatter of the N − 1 − m contrasts between runs that no effect uses, as in designs without
replication (Box, Hunter and Hunter 2005, chapter 5):

    SE² = 4·s² / N        s² = (Σ (ȳ_r − ȳ)² − Σ N·(effect / 2)²) / (N − 1 − m)

That s² includes any interactions among those contrasts, which makes tests conservative.

p-values are corrected by Holm, or by Benjamini and Hochberg 1995 where a share of false discoveries is acceptable.
Intervals agree with either: those of `simultaneous` with Holm; with R discoveries among m effects, those at confidence
1 − R·α/m with Benjamini–Hochberg, whose false-coverage rate is α (Benjamini and Yekutieli 2005,
doi:10.1198/016214504000001907).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from scipy import special

from reports.judge.findings.comparison import MEMORY, NO_COSTS, ArmCosts, Comparison, judged_ratios
from reports.judge.findings.judging import Pair, Standing, at_any_rate, difference_claim, differences, ties
from reports.judge.findings.study_summary import EffectSummary
from reports.judge.findings.verdicts import failed, judgement, level, why_withheld
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Estimate, Failures, Floats, detectable_effect
from reports.judge.statistics.ledger import LedgerClaim
from reports.judge.statistics.simultaneous import Evidence
from reports.judge.verdicts import ALPHA
from store.documents import LedgerTest, StudyDesign, StudyDocument, StudyEffect


@dataclass(frozen=True)
class EffectTest:
    """One effect, its standard error, and the error's degrees of freedom.

    `below`: the effect is unbounded below, since a run at + might have done better with settings beyond those tried.
    `above`: likewise unbounded above, because of a run at −.
    """

    value: float
    error: float
    freedom: int
    below: bool = False
    above: bool = False

    @property
    def p(self) -> float:
        """Two-sided p-value; 1 if the effect is unbounded towards zero."""
        if self.below if self.value > 0 else self.above:
            return 1.0
        return 2 * float(special.stdtr(self.freedom, -abs(self.value) / self.error))

    def p_tie(self, margin: float) -> float:
        """Larger p of two one-sided tests: small if the effect is shown to lie within ± `margin`."""
        if self.below or self.above:
            return 1.0
        return float(special.stdtr(self.freedom, (abs(self.value) - margin) / self.error))

    def interval(self, level: float) -> tuple[float, float]:
        half = -self.error * float(special.stdtrit(self.freedom, level / 2))
        return -math.inf if self.below else self.value - half, math.inf if self.above else self.value + half

    def evidence(self, p: float, alpha: float = ALPHA) -> Evidence:
        """Evidence for a correction over several effects. `p` already includes the correction for looks, each at
        `alpha`."""
        return Evidence(self.value, p, lambda level: self.interval(level * alpha / ALPHA))


def seed_effects(contrasts: ArrayLike, losses: ArrayLike) -> Floats:
    """(effects, seeds) from contrasts (effects, runs) of −1 and 1, and losses (runs, seeds)."""
    signs = np.asarray(contrasts, dtype=np.float64)
    return np.asarray(2 * signs @ np.asarray(losses, dtype=np.float64) / signs.shape[1])


def effect_tests(contrasts: ArrayLike, losses: ArrayLike, *, tuned: bool = False) -> tuple[EffectTest, ...]:
    """Test of every effect, from orthogonal contrasts (effects, runs) and losses (runs, seeds) of two seeds or more.

    tuned: each run has noise that its seeds share, so the error comes from the contrasts without an effect.
    """
    values = np.asarray(losses, dtype=np.float64)
    effects = seed_effects(contrasts, values).mean(axis=1)
    (runs, seeds), means = values.shape, values.mean(axis=1)
    if tuned:
        # the scatter of seeds misses errors of tuning: use the sum of squares between runs that no effect takes
        freedom = runs - 1 - len(effects)
        left = max(np.square(means - means.mean()).sum() - runs * np.square(effects / 2).sum(), 0.0)
        count = runs
    else:
        # residual after run and seed effects
        freedom = (runs - 1) * (seeds - 1)
        left = np.square(values - means[:, None] - values.mean(axis=0) + values.mean()).sum()
        count = values.size
    error = 2 * float(np.sqrt(left / freedom / count))
    return tuple(EffectTest(float(effect), error, freedom) for effect in effects)


FEWEST_SEEDS = 2


@dataclass(frozen=True)
class _Blocks:
    """The seeds that finished in all runs of a design."""

    study: StudyDocument
    design: StudyDesign
    runs: pl.DataFrame

    @cached_property
    def finished(self) -> pl.DataFrame:
        return self.runs.filter(status="finished")

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        found = [set(self.finished.filter(arm=arm.name)["seed"]) for arm in self.study.arms]
        return tuple(sorted(set.intersection(*found)))

    @cached_property
    def signs(self) -> list[list[int]]:
        """(effects, runs)."""
        return [[1 if arm.name in effect.arms else -1 for arm in self.study.arms] for effect in self.design.effects]

    def table(self, column: str) -> Floats:
        """(runs, seeds); NaN if a run lacks the number."""
        values = {(arm, seed): value for arm, seed, value in self.finished.select("arm", "seed", column).rows()}
        rows = [[values[arm.name, seed] for seed in self.seeds] for arm in self.study.arms]
        return np.array(rows, dtype=np.float64)

    def tests(self) -> tuple[EffectTest | None, ...]:
        """Test of each effect; None if it cannot be tested: fewer than two seeds, or no scatter."""
        if len(self.seeds) < FEWEST_SEEDS:
            return (None,) * len(self.signs)
        found = effect_tests(self.signs, self.table("loss"), tuned=bool(self.study.tuning))
        at_edges = {each.arm for each in self.study.tuning if each.edges}
        highs = [set(effect.arms) for effect in self.design.effects]
        return tuple(
            replace(
                test,
                below=bool(at_edges & high or self.failed - high),
                above=bool(at_edges - high or self.failed & high),
            )
            if test.error
            else None
            for test, high in zip(found, highs, strict=True)
        )

    @cached_property
    def failed(self) -> set[str]:
        """Runs of the design with a failed seed, an unknown, bad loss."""
        return {arm.name for arm in self.study.arms if failed(self.runs, arm.name)}

    def plain(self) -> list[Comparison]:
        """Each effect before correction for the others."""
        losses = seed_effects(self.signs, self.table("loss")) if self.seeds else np.empty((len(self.signs), 0))
        found = []
        for effect, values in zip(self.design.effects, losses, strict=True):
            high = set(effect.arms)
            failures = Failures(len(self.failed & high), len(self.failed - high))
            mean = None
            if len(values):
                sd = float(values.std(ddof=1)) if len(values) > 1 else None
                mean = Estimate(float(values.mean()), None, None, sd, tuple(values.tolist()))
            found.append(Comparison(mean, None, failures, self.seeds, self.alpha))
        return found

    @property
    def alpha(self) -> float:
        return level(self.study, *self.study.arms)


def judge_effects(data: Collected) -> tuple[EffectSummary, ...]:
    """Every effect that the design judges, corrected for the others and for all earlier judgements."""
    design = data.study.design
    if design is None:
        return ()
    blocks = _Blocks(data.study, design, data.runs)
    tests, reason = blocks.tests(), why_withheld(data.study, data.runs)
    recorded = [
        _ledger_test(data.study, effect, test if reason is None else None, blocks.alpha)
        for effect, test in zip(design.effects, tests, strict=True)
    ]
    evidence = {
        difference_claim(own): test.evidence(own.p, blocks.alpha)
        for own, test in zip(recorded, tests, strict=True)
        if test is not None and own.p is not None
    }
    standings = differences(recorded, evidence, data.ledger, design.correction, data.elsewhere)
    alike, costs = ties(recorded, data.ledger, data.elsewhere), _costs(data, design)
    summaries = []
    for effect, plain, own, test in zip(design.effects, blocks.plain(), recorded, tests, strict=True):
        comparison = _standing(replace(plain, test=own), test, standings, alike)
        with_costs = replace(comparison, costs=costs.get(effect.name, NO_COSTS))
        high = data.runs.filter(pl.col("arm").is_in(effect.arms))
        summaries.append(EffectSummary(effect, judgement(_pair(data.study, effect), high, with_costs, reason)))
    return tuple(summaries)


def _ledger_test(study: StudyDocument, effect: StudyEffect, test: EffectTest | None, alpha: float) -> LedgerTest:
    looked = ALPHA / alpha
    tie = None if test is None or not study.margin else min(1.0, looked * test.p_tie(study.margin))
    arm, base = _pair(study, effect)
    return LedgerTest(
        arm=arm,
        baseline=base,
        arm_identity=effect.identity,
        baseline_identity=effect.other_identity,
        seeds=None if study.looks else _planned_seeds(study),
        looks=tuple(look.seeds for look in study.looks),
        margin=study.margin,
        tuned=bool(study.tuning),
        at=len(_planned_seeds(study)),
        p=None if test is None else min(1.0, looked * test.p),
        p_tie=tie,
        question=at_any_rate(*study.arms),
    )


def _pair(study: StudyDocument, effect: StudyEffect) -> Pair:
    return effect.name, f"the other {len(study.arms) - len(effect.arms)} of {len(study.arms)} runs"


def _planned_seeds(study: StudyDocument) -> tuple[int, ...]:
    return tuple(sorted(set.intersection(*({run.seed for run in arm.runs} for arm in study.arms))))


def _standing(
    found: Comparison,
    test: EffectTest | None,
    standings: Mapping[LedgerClaim, Standing],
    alike: Mapping[LedgerClaim, float | None],
) -> Comparison:
    """The comparison, corrected among all that are judged; if it is not judged, with its uncorrected interval."""
    assert found.test is not None
    claim = difference_claim(found.test)
    standing = standings.get(claim)
    if test is None or found.difference is None or standing is None:
        return replace(found, repeated=standing is None)
    low, high = test.interval(found.alpha)
    if standing.p is not None:
        low, high = standing.interval.low, standing.interval.high
    return replace(
        found,
        difference=replace(found.difference, low=low, high=high),
        p_holm=standing.p,
        p_equivalence=alike.get(claim),
        detectable=None
        if test.below or test.above
        else detectable_effect(test.error, test.freedom, standing.of_each(found.alpha)),
    )


def _costs(data: Collected, design: StudyDesign) -> dict[str, ArmCosts]:
    """Ratios of costs for each factor of a design; interactions have none."""
    arms = {arm.name: arm for arm in data.study.arms}
    effects = {effect.name: set(effect.arms) for effect in design.effects if len(effect.factors) == 1}
    weights = {
        name: {arm: 1 / len(high) if arm in high else -1 / (len(arms) - len(high)) for arm in arms}
        for name, high in effects.items()
    }
    ratios = judged_ratios(data, weights)
    sizes = {name: arm.kv_bytes_per_token for name, arm in arms.items()}
    logs = {name: math.log(size) for name, size in sizes.items() if size}
    return {
        name: ArmCosts(
            training=ratios.get((name, "training")),
            decoding=ratios.get((name, "decoding")),
            memory=ratios.get((name, MEMORY)),
            kv_ratio=math.exp(sum(own[arm] * log for arm, log in logs.items())) if len(logs) == len(arms) else None,
        )
        for name, own in weights.items()
    }
