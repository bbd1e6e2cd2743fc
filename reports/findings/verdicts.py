"""The verdict on an arm: tests against the baseline, corrected for the number of arms and of looks. Pure.

Two families of tests are kept apart, each corrected by Holm over the arms at 5 %. One says *better* or *worse*: at most
5 % of studies call an arm better or worse that is neither. The other, where the study gives a margin, says *no
difference*: at most 5 % of studies do so of an arm that differs by the margin or more. An arm cannot be wronged by
both, since it cannot differ by nothing and by the margin at once.

A study that adds seeds in rounds has looks k with levels α_k, Σ α_k = 0.05, and judges an arm at the look of its number
of seeds. There a p-value is multiplied by 0.05 / α_k. Whatever the look at which a study stops, P(p_k · 0.05 / α_k ≤ c)
≤ Σ_k α_k · c / 0.05 = c by the union bound, for every c, so that the products are p-values and Holm applies to them. An
arm that is settled stays so while others get more seeds: where Holm rejects some p-values, it does so whatever becomes
of those that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from ablate.store.documents import StudyArm, StudyDocument
from reports.findings.shapes import Comparison, Verdict
from reports.statistics.estimates import ALPHA, Estimate, equivalence_p, estimate, geometric, holm_by_name, paired_p
from reports.statistics.power import seeds_needed, smallest_detectable


def level(study: StudyDocument, arm: StudyArm) -> float:
    """α of the look at which an arm stands: that of its number of seeds, or the next. 0.05 where seeds are fixed.

    Seeds are those that the study asks of both the arm and the baseline, whether or not their runs have ended.
    """
    if not study.looks:
        return ALPHA
    seeds = len({run.seed for run in arm.runs} & {run.seed for run in study.baseline_arm.runs})
    return next((look.alpha for look in study.looks if look.seeds >= seeds), study.looks[-1].alpha)


def last_level(study: StudyDocument) -> float:
    """α of the last look: what more seeds are judged by."""
    return study.looks[-1].alpha if study.looks else ALPHA


def compare(study: StudyDocument, finished: pl.DataFrame) -> dict[str, Comparison]:
    """Every arm but the baseline against it, over the seeds that finished in both. `finished`: the runs that did."""
    others = [arm for arm in study.arms if arm.name != study.baseline]
    return _corrected({arm.name: _compare(study, arm, finished) for arm in others})


def _compare(study: StudyDocument, arm: StudyArm, finished: pl.DataFrame) -> Comparison:
    base, alpha, margin = study.baseline_arm, level(study, arm), study.margin
    own, theirs = (finished.filter(arm=each.name) for each in (arm, base))
    pairs = own.join(theirs, on="seed", suffix="_base").sort("seed")
    difference = estimate((pairs["loss"] - pairs["loss_base"]).to_list(), alpha)
    tested = difference is not None and bool(difference.sd)
    values = difference.values if difference is not None else ()
    comparisons, looked = len(study.arms) - 1, ALPHA / alpha
    kv, base_kv = arm.kv_bytes_per_token, base.kv_bytes_per_token
    return Comparison(
        difference=difference,
        seeds=tuple(pairs["seed"]),
        alpha=alpha,
        p=min(1.0, looked * float(paired_p(values))) if tested else None,
        p_holm=None,
        p_equivalence=min(1.0, looked * float(equivalence_p(values, margin))) if tested and margin else None,
        detectable_nats=_detectable(difference, comparisons, alpha),
        seeds_needed=_needed(difference, comparisons, margin, last_level(study)),
        speed_ratio=_ratio(pairs, "tokens_per_second"),
        memory_ratio=_ratio(pairs, "peak_memory_bytes"),
        kv_ratio=kv / base_kv if kv is not None and base_kv else None,
    )


def _detectable(difference: Estimate | None, comparisons: int, alpha: float) -> float | None:
    if difference is None or not difference.sd:
        return None
    return smallest_detectable(difference.sd, len(difference.values), comparisons, alpha=alpha)


def _needed(difference: Estimate | None, comparisons: int, margin: float | None, alpha: float) -> int | None:
    if difference is None or not difference.sd:
        return None
    return seeds_needed(difference.mean, difference.sd, len(difference.values), comparisons, margin, alpha)


def _ratio(pairs: pl.DataFrame, column: str) -> Estimate | None:
    rows = pairs.drop_nulls([column, f"{column}_base"])
    return geometric((rows[column] / rows[f"{column}_base"]).to_list())


def _corrected(comparisons: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """The same with Holm's correction in each family."""
    differ = holm_by_name({name: c.p for name, c in comparisons.items()})
    alike = holm_by_name({name: c.p_equivalence for name, c in comparisons.items()})
    return {name: replace(c, p_holm=differ[name], p_equivalence=alike[name]) for name, c in comparisons.items()}


def decide(comparison: Comparison | None, diverged: int, finished: int, baseline_diverged: int = 0) -> Verdict:
    """Lower loss is better. Fewer than two pairs, or seeds that all give the same difference, cannot tell.

    A difference shown to be smaller than the margin is none, whatever its sign. An arm of which a seed diverged is
    never better, nor is one worse than such a baseline, and neither is ever without a difference.
    """
    if diverged and not finished:
        return "diverged"
    if comparison is None:
        return "baseline"
    if comparison.difference is None or comparison.p_holm is None:
        return "cannot tell"
    if comparison.shows_no_difference and not (diverged or baseline_diverged):
        return "no difference"
    if not comparison.shows_difference:
        return "inconclusive"
    return _direction(comparison.difference.mean > 0, diverged, baseline_diverged)


def _direction(higher: bool, diverged: int, baseline_diverged: int) -> Verdict:
    if higher:
        return "inconclusive" if baseline_diverged > diverged else "worse"
    return "inconclusive" if diverged else "better"
