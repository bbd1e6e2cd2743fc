"""The effects of a factorial design: each compares half of its runs with the other half. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from ablate.wings.designs.contrasts import EffectTest, effect_tests, seed_effects
from reports.judge.findings.comparison import Comparison
from reports.judge.findings.costs import MEMORY, NO_COSTS, ArmCosts, judged_ratios
from reports.judge.findings.judging import Pair, Standing, at_any_rate, difference_claim, differences, ties
from reports.judge.findings.study_summary import EffectSummary
from reports.judge.findings.verdicts import failed, judgement, level, why_withheld
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Estimate, Failures, Floats
from reports.judge.statistics.interval import detectable_effect
from reports.judge.statistics.ledger import LedgerClaim
from reports.judge.verdicts import ALPHA
from store.documents import LedgerTest, StudyDesign, StudyDocument, StudyEffect

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
