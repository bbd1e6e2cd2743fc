"""The verdict on an arm: tests against the baseline, corrected for the number of arms and of looks. Pure.

Two families of tests are kept apart, each corrected by Holm over the arms at 5 %. One decides *better* or *worse*: at
most 5 % of studies call an arm better or worse that is neither. The other, if the study gives a margin, decides *no
difference*: at most 5 % of studies give this verdict to an arm that differs by the margin or more. No arm can be
misjudged by both, since its difference cannot be zero and the margin at once.

A study that adds seeds in rounds has looks k with levels α_k, Σ α_k = 0.05, and judges an arm at the look of its number
of seeds. There a p-value is multiplied by 0.05 / α_k. Whatever the look at which a study stops, P(p_k · 0.05 / α_k ≤ c)
≤ Σ_k α_k · c / 0.05 = c by the union bound, for every c, so the products are p-values and Holm applies to them. A
settled arm stays settled while others get more seeds: Holm's rejections do not depend on the p-values that it does not
reject.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import polars as pl

from reports.judge.findings.comparison import Comparison, Judgement
from reports.judge.findings.judging import Pair, Standing, difference_claim, differences, ledger_test, ties
from reports.judge.findings.noise import StudyNoise, study_noise
from reports.judge.noise.difference import NOTHING, Difference
from reports.judge.noise.power import FIRST_SHARE, chance_of_settling, seeds_needed
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.crossed import crossed
from reports.judge.statistics.estimates import Estimate, Failures, detectable_effect, estimate
from reports.judge.statistics.simultaneous import Evidence
from reports.judge.verdicts import ALPHA, Verdict, verdict_of
from store.documents import LedgerRecord, StudyArm, StudyDocument
from store.documents.study import UNJUDGED
from store.documents.study_arm import LIMITS, all_undertrained

# Reasons for withholding a verdict, whatever the runs show so far. Pure.
#
# Looking at results as they come in, and stopping at will, finds differences that do not exist.

PILOT = (
    "a pilot only estimates and spends none of the 5 % error rate: judge the question on other seeds, without "
    "`pilot: true`"
)
UNDERTRAINED = (
    f"all arms are undertrained (fewer than {LIMITS}): estimates only, which spend none of the 5 % error rate. Train "
    "for longer, or judge them as they are with `pilot: false`"
)

REPEATED = (
    "results of some of these seeds were shown before, in another set of seeds, for another question or with the "
    "noise of tuning: judging seeds again until a difference appears inflates false positives. Let the study add seeds "
    "(seeds: auto), or judge fresh ones"
)
UNLEARNT = "no arm learned the task, so losses only compare guesses: train for longer, or use an easier task"
LEARNT = 0.05
"""A task counts as learnt from an accuracy this share of the way up from guessing to 1."""


def guesses(runs: pl.DataFrame) -> bool:
    """Whether runs on a synthetic task have finished and none is better than guessing."""
    ended = runs.filter(status="finished").drop_nulls(("accuracy", "chance"))
    learnt = ended.filter(pl.col("accuracy") > pl.col("chance") + LEARNT * (1 - pl.col("chance")))
    return not ended.is_empty() and learnt.is_empty()


def why_withheld(study: StudyDocument, runs: pl.DataFrame, of: str = "study") -> str | None:
    """Reason why nothing that rests on these runs may be judged; None if it may. of: the part of the study that they
    are.

    Noise is pooled over a study, so it is judged once all of its runs have ended.
    """
    if study.scale in UNJUDGED:
        return f"the scale {study.scale} shows that a study runs, not what it finds"
    if study.pilot:
        return UNDERTRAINED if all_undertrained(study.arms) else PILOT
    if guesses(runs):
        return UNLEARNT
    missing = runs.filter(pl.col("status").is_in(["absent", "partial"])).height
    return f"{missing} of {runs.height} runs of this {of} have not ended" if missing else None


def level(study: StudyDocument, *arms: StudyArm) -> float:
    """α of the look at which a comparison stands: the look of its number of seeds, or the next. 0.05 if seeds are
    fixed.

    Seeds are those that the study plans for all these arms, whether or not their runs have ended.
    """
    if not study.looks:
        return ALPHA
    seeds = len(set.intersection(*({run.seed for run in arm.runs} for arm in arms)))
    return next((look.alpha for look in study.looks if look.seeds >= seeds), study.looks[-1].alpha)


def compare(
    study: StudyDocument,
    runs: pl.DataFrame,
    ledger: Sequence[LedgerRecord] = (),
    withheld: Collection[Pair] = (),
    losses: pl.DataFrame | None = None,
    elsewhere: Sequence[Sequence[LedgerRecord]] = (),
    shared: Mapping[Pair, float] = MappingProxyType({}),
    noise: StudyNoise | None = None,
) -> dict[Pair, Comparison]:
    """Every pair that the study compares, over the seeds that trained in both arms.

    runs: those of all arms. ledger: earlier judgements of the question. withheld: pairs that are not judged yet, but
    count as tests. losses: final losses by document, if known. elsewhere: judgements under other names. shared:
    standard errors that all seeds of a pair have in common, apart from that of documents. noise: of these runs;
    computed if None.
    """
    noise = noise or study_noise(study.tuning, runs)
    plain = {
        (arm.name, base.name): _compare(study, arm, base, runs, losses, noise, shared) for arm, base in study.pairs
    }
    known = {pair: Evidence.of(each.gap, ALPHA / each.alpha) for pair, each in plain.items() if pair not in withheld}
    tests = {}
    for arm, base in study.pairs:
        pair = arm.name, base.name
        if pair in withheld or (gap := plain[pair].gap) is None:
            tests[pair] = ledger_test(study, arm, base)
            continue
        tie = min(1.0, ALPHA / plain[pair].alpha * gap.p_within(study.margin)) if study.margin else None
        tests[pair] = ledger_test(study, arm, base, known[pair].p, tie)
    claims = {pair: difference_claim(test) for pair, test in tests.items()}
    judged, evidence = tuple(tests.values()), {claims[pair]: known[pair] for pair in tests if tests[pair].p is not None}
    standings = differences(judged, evidence, ledger, elsewhere=elsewhere)
    alike = ties(judged, ledger, elsewhere)
    return {
        pair: _standing(study, replace(plain[pair], test=test), standings.get(claims[pair]), alike.get(claims[pair]))
        for pair, test in tests.items()
    }


def _compare(
    study: StudyDocument,
    arm: StudyArm,
    base: StudyArm,
    runs: pl.DataFrame,
    losses: pl.DataFrame | None,
    noise: StudyNoise,
    shared: Mapping[Pair, float],
) -> Comparison:
    """The comparison before correction for the other tests."""
    alpha, pair = level(study, arm, base), (arm.name, base.name)
    own, theirs = (runs.filter(arm=name, status="finished") for name in pair)
    pairs = own.join(theirs, on="seed", suffix="_base").sort("seed")
    seeds, values = pairs["seed"].to_list(), (pairs["loss"] - pairs["loss_base"]).to_list()
    gap = noise.difference(*pair, math.hypot(document_error(losses, pair, seeds, values), shared.get(pair, 0.0)))
    difference = estimate(values, alpha)
    if gap is not None:
        ends = replace(gap, own=NOTHING, other=NOTHING).interval(alpha)
        difference = Estimate(gap.value, *ends, difference.sd if difference else None, tuple(values))
    return Comparison(difference, gap, Failures(*(failed(runs, name) for name in pair)), tuple(seeds), alpha)


def failed(runs: pl.DataFrame, arm: str) -> int:
    """Number of failed runs of an arm."""
    return runs.filter(pl.col("status").is_in(FAILED), arm=arm).height


def _standing(
    study: StudyDocument, found: Comparison, standing: Standing | None, p_equivalence: float | None
) -> Comparison:
    """The comparison, corrected among all that are judged."""
    difference, gap = found.difference, found.gap
    if difference is None or gap is None:
        return replace(found, repeated=standing is None)
    if standing is None:
        visible = _corrected(difference, gap, found.alpha * FIRST_SHARE / len(study.pairs))
        return replace(found, repeated=True, difference=visible)
    spent = standing.level / ALPHA
    room = gap.room(found.alpha * spent)
    needed, smallest, chance = None, None, None
    if math.isfinite(room) and math.isfinite(gap.error):
        error = math.hypot(gap.error, gap.shared)
        smallest = detectable_effect(error, gap.freedom, standing.of_each(found.alpha)).moved(room)
    if smallest and study.looks and not found.failures.any:
        seeds, last = len(found.seeds), spent * study.looks[-1].alpha  # the level at which more seeds are judged
        shown = max(0.0, abs(difference.mean) - room)
        sd = gap.error * math.sqrt(seeds)
        needed = seeds_needed(shown, sd, seeds, standing.tests, study.margin, last, gap.freedom)
        if (end := study.looks[-1].seeds) > seeds:  # at Holm's last step, which asks the least
            kept = math.hypot(room, gap.shared)
            chance = chance_of_settling(gap.value, gap.error, gap.freedom, seeds, end, last, study.margin, kept)
    if standing.p is None:  # no verdict: an interval corrected for as many tests
        within = _corrected(difference, gap, standing.of_each(found.alpha))
    else:
        within = replace(difference, low=standing.interval.low, high=standing.interval.high)
    return replace(
        found,
        difference=within,
        p_holm=standing.p,
        p_equivalence=p_equivalence,
        detectable=smallest,
        seeds_needed=needed,
        chance=chance,
        tuning_room=room,
    )


def _corrected(difference: Estimate, gap: Difference, level: float) -> Estimate:
    low, high = gap.interval(level)
    return replace(difference, low=low, high=high)


def never_trained(runs: pl.DataFrame) -> Verdict | None:
    """Failure mode, if every run that ended failed."""
    ended = set(runs["status"]) - {"absent", "partial"}
    if not ended or "finished" in ended:
        return None
    return "stalled" if "stalled" in ended else "diverged"


def judgement(pair: Pair, runs: pl.DataFrame, found: Comparison, reason: str | None) -> Judgement:
    """The verdict on a pair. runs: those of its first arm. reason: why nothing is judged yet."""
    withheld = reason or (REPEATED if found.repeated else None)
    said = never_trained(runs) or decide(found, withheld=withheld is not None)
    return Judgement(*pair, found, said, withheld)


def decide(comparison: Comparison, *, withheld: bool = False) -> Verdict:
    """The verdict on a comparison: cannot tell with fewer than two seeds, and if both arms have the same losses."""
    if withheld:
        return "no verdict"
    if comparison.difference is None or comparison.p_holm is None:
        return "cannot tell"
    return verdict_of(comparison.difference.mean, comparison.p_holm, comparison.p_equivalence)


FEWEST = 10
"""Fewest documents for a statement about other documents; below it, differences hold for this text alone."""
TOLERANCE = 1e-5
"""Tolerance in nats between the mean over documents and the difference of the losses, which are rounded separately."""


def document_error(
    losses: pl.DataFrame | None, pair: tuple[str, str], seeds: Sequence[int], values: Sequence[float]
) -> float:
    """Standard error of a pair's mean difference over held-out documents alone; 0 if the store cannot tell.

    With one loss per seed and document, both are crossed random effects (`statistics.crossed`). The error over
    seeds is that of the study's noise model; this is what documents add to it, and no number of seeds reduces it.
    losses: the sum `nats` and its `weight`, by arm, seed and document. values: the pair's differences by seed.
    """
    if losses is None or len(seeds) < 2:
        return 0.0
    known = losses.filter(pl.col("seed").is_in(list(seeds)))
    own, theirs = (known.filter(arm=name) for name in pair)
    cells = own.join(theirs, on=["seed", "item", "weight"], suffix="_base").sort("seed", "item")
    items = cells["item"].n_unique()
    if items < FEWEST or {own.height, theirs.height, cells.height} != {len(seeds) * items}:
        return 0.0
    sums, bases, weights = (cells[name].to_numpy().reshape(-1, items) for name in ("nats", "nats_base", "weight"))
    means = (sums - bases).sum(axis=1) / weights.sum(axis=1)
    if not np.allclose(means, values, rtol=0, atol=TOLERANCE):
        return 0.0
    table = crossed((sums - bases) / weights, weights[0])
    return math.sqrt(max(table.column_square - table.residual_square, 0.0) / math.prod(table.shape))
