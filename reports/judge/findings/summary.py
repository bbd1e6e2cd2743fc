"""From frames to findings: estimates over seeds, differences, verdicts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import fmean

import numpy as np
import polars as pl
import scipy  # loads its submodules on first use

from reports.judge.findings import warnings
from reports.judge.findings.comparison import Judgement, StudyCosts, study_costs
from reports.judge.findings.judging import Pair, late_margins
from reports.judge.findings.noise import StudyNoise, noise_of
from reports.judge.findings.study_summary import (
    ArmSummary,
    EffectSummary,
    MeanScore,
    NoiseSummary,
    SectionSummary,
    StudySummary,
)
from reports.judge.findings.verdicts import compare, judgement, level, never_trained, why_withheld
from reports.judge.noise import Noise
from reports.judge.noise.moderated import Odd
from reports.judge.reading.collect import comparable
from reports.judge.reading.collected import Collected, lines_of
from reports.judge.scores import ItemDifference, item_differences, unpaired
from reports.judge.statistics.estimates import Estimate, combined_stderr, estimate, score_half_width
from reports.judge.verdicts import ALPHA, Verdict
from store.documents import StudyArm
from store.documents.measure import CROWDED
from store.errors import ReportError
from store.extensions import modules_of
from store.tables import NUMBERS

SPEEDS = ("tokens_per_second", "mfu", "mfu_published", "matmul_flops_per_second")
"""Columns of speed that are dropped for runs that shared their machine."""


def summarise(data: Collected, sections: Sequence[type[SectionSummary]] = ()) -> StudySummary:
    """Findings from frames, with those of the sections. Pure. Raises ReportError if runs were trained on different
    data."""
    # All runs read one corpus; with one tokenizer per arm, each run reads its arm's corpus.
    planned = {arm.name: arm.data for arm in data.study.arms} if data.study.per == "byte" else {}
    read = data.runs.drop_nulls("data").select("arm", "data").rows()
    digests = sorted({digest for arm, digest in read if digest != planned.get(arm)})
    if len(digests) > (0 if planned else 1):
        raise ReportError(f"runs trained on different data cannot be compared: {', '.join(digests)}")
    data = comparable(data)
    costs, noise = study_costs(data), noise_of(data)
    judged = _judged(data, costs, noise)
    arms = _arms(data, judged, costs, noise)
    judges = [wing.judge_effects for wing in modules_of(__name__)]
    effects = tuple(each for judge in judges for each in judge(data))
    found = {each.name(): each.summarise(data) for each in sections}
    plain = StudySummary(
        study=data.study,
        arms=arms,
        noise=_noise(noise, data.ahead, arms, effects),
        warnings=(
            *warnings.find(data),
            *(text for each in sections for text in each.warnings(data)),
            *_late_margin(data, judged),
            *unpaired({arm.name: arm.items for arm in arms}),
        ),
        environment=warnings.environment(data),
        runs=data.runs,
        ledger=data.ledger,
        elsewhere=data.elsewhere,
        contrasts=tuple(each for (_, base), each in judged.items() if base != data.study.baseline),
        effects=effects,
        unmeasured=costs.reason,
        grouped=data.grouped,
        inputs=data.inputs,
        references=data.references,
        store_option=data.store_option,
        began=data.began,
        sections={name: section for name, section in found.items() if section is not None},
    )
    known = {name: section.judged(data, plain) for name, section in plain.sections.items()}
    return replace(plain, sections=known)


def _late_margin(data: Collected, judged: Mapping[Pair, Judgement]) -> Iterator[str]:
    """Warning that a margin was set after the differences were known."""
    tests = [each.comparison.test for each in judged.values() if each.comparison.test is not None]
    for margin in set(late_margins(tests, data.ledger, data.elsewhere).values()):
        yield (
            f"The margin of {margin:g} nats was set after these seeds had been judged without it, so they cannot show "
            "that a difference is smaller: judge fresh seeds with it."
        )


def open_arms(summary: StudySummary) -> tuple[str, ...]:
    """Arms that more seeds could settle, by themselves or in a contrast.

    An arm whose verdict failed seeds prevent is not among them, nor one that the seeds still planned would hardly
    settle: leaving it can only lower the rate of false verdicts. All runs of a design inform every effect, so one open
    effect leaves all arms open.
    """

    def is_open(each: Judgement) -> bool:
        unsettled = each.verdict in ("inconclusive", "cannot tell") and not each.comparison.shows_difference
        hopeless = each.comparison.waits_for_rates or each.comparison.is_barred or each.comparison.is_futile
        return unsettled and not hopeless

    if any(is_open(each.judgement) for each in summary.effects):
        found = [arm.name for arm in summary.arms]
    else:
        found = [name for each in summary.judgements if is_open(each) for name in (each.arm, each.base)]
    return tuple(name for name in dict.fromkeys(found) if name != summary.baseline)


def _judged(data: Collected, costs: StudyCosts, noise: StudyNoise) -> dict[Pair, Judgement]:
    reason = why_withheld(data.study, data.runs)
    errors = step_time_errors(data)
    unknown = {pair: UNKNOWN for pair, error in errors.items() if math.isinf(error)}
    withheld = {(arm.name, base.name): reason for arm, base in data.study.pairs} if reason else unknown
    known = {pair: error for pair, error in errors.items() if pair not in unknown}
    found = compare(data.study, data.runs, data.ledger, withheld, data.losses, data.elsewhere, known, noise)
    return {
        pair: judgement(pair, data.runs.filter(arm=pair[0]), replace(each, costs=costs.pairs[pair]), withheld.get(pair))
        for pair, each in found.items()
    }


def _arms(
    data: Collected, judged: Mapping[Pair, Judgement], costs: StudyCosts, noise: StudyNoise
) -> tuple[ArmSummary, ...]:
    base = data.study.baseline_arm
    levels = {arm.name: level(data.study, arm, base) for arm in data.study.arms}
    waits = [each.arm for each in judged.values() if each.withheld]
    items = {} if data.study.design else item_differences(data, levels, waits)
    odd, speeds = noise.odd, {name: known.get("training") for name, known in costs.speeds.items()}
    return tuple(
        _arm(data, arm, speeds.get(arm.name), judged.get((arm.name, base.name)), items.get(arm.name, ()), odd)
        for arm in data.study.arms
    )


def _arm(
    data: Collected,
    arm: StudyArm,
    training_speed: float | None,
    judged: Judgement | None,
    items: tuple[ItemDifference, ...],
    odd: Mapping[str, Odd],
) -> ArmSummary:
    name = arm.name
    runs = data.runs.filter(arm=name)
    finished = runs.filter(status="finished").sort("seed")
    known = finished.with_columns(excess=pl.col("loss") - pl.col("floor"))
    alone = (pl.col("waiting").fill_null(0.0) < CROWDED) & (pl.col("beside").fill_null(0) == 0)
    known = known.with_columns(pl.when(alone).then(pl.col(SPEEDS)))
    values = known.select(*NUMBERS, "excess").to_dict(as_series=False)
    means = {column: estimate([each for each in of if each is not None]) for column, of in values.items()}
    shared = data.shared if name == data.study.baseline else {}
    if beside := [loss for losses in shared.values() for loss in losses.values() if math.isfinite(loss)]:
        means["loss"] = estimate([*finished["loss"].to_list(), *beside])
    seconds = finished["train_seconds"].drop_nulls().to_list()
    untested: Verdict = "baseline" if name == data.study.baseline else "not compared"  # a run of a design
    return ArmSummary(
        planned=arm,
        seeds=tuple(finished["seed"]),
        stalled=tuple(runs.filter(status="stalled")["seed"]),
        diverged=tuple(runs.filter(status="diverged")["seed"]),
        missing=tuple(runs.filter(pl.col("status").is_in(["absent", "partial"]))["seed"]),
        means={column: mean for column, mean in means.items() if mean is not None},
        training_speed=training_speed,
        shared={study: tuple(seed for seed, loss in of.items() if math.isfinite(loss)) for study, of in shared.items()},
        outlier=odd.get(name),
        train_seconds=sum(seconds) / len(seconds) if seconds else None,
        scores=_scores(data, name),
        items=items,
        comparison=judged.comparison if judged else None,
        verdict=judged.verdict if judged else never_trained(runs) or untested,
        withheld=judged.withheld if judged else None,
    )


def _scores(data: Collected, arm: str) -> tuple[MeanScore, ...]:
    groups = data.scores.filter(arm=arm).group_by("task", "metric", maintain_order=True)
    found = []
    for (task, metric), rows in groups:
        stderrs, known = rows["stderr"].to_list(), rows["value"].drop_nulls().to_list()
        whole = len(known) == rows.height
        found.append(
            MeanScore(
                task=str(task),
                metric=str(metric),
                value=sum(known) / len(known) if whole else None,
                stderr=combined_stderr(stderrs, known) if whole else None,
                half_width=score_half_width(stderrs, known) if whole else None,
                higher_is_better=rows["higher_is_better"][0],
                chance=rows["chance"][0],
                seeds=rows.height,
            )
        )
    return tuple(found)


def _noise(
    noise: StudyNoise, ahead: Noise | None, arms: tuple[ArmSummary, ...], effects: tuple[EffectSummary, ...]
) -> NoiseSummary:
    every = [arm.comparison for arm in arms if arm.comparison] + [each.comparison for each in effects]
    comparisons = [each for each in every if not each.rounds_to_zero]
    by_value = attrgetter("value")
    seen = [found for comparison in comparisons if (found := comparison.detectable) is not None]
    return NoiseSummary(
        run=noise.run,
        ahead=ahead,
        loss_sd=_pooled([arm.loss for arm in arms]),
        difference_sd=_pooled([comparison.difference for comparison in comparisons]),
        detectable=(min(seen, key=by_value), max(seen, key=by_value)) if seen else None,
    )


def _pooled(estimates: list[Estimate | None]) -> float | None:
    """√(Σ (n−1)·sd² / Σ (n−1)) over the estimates that have a standard deviation."""
    known = [(len(e.values) - 1, e.sd) for e in estimates if e is not None and e.sd is not None]
    if not known:
        return None
    return math.sqrt(sum(n * sd * sd for n, sd in known) / sum(n for n, _ in known))


UNKNOWN = (
    "the budget is in seconds, and the error of the measured step times is unknown; running the study again "
    "measures them"
)


def step_time_errors(data: Collected) -> Mapping[Pair, float]:
    """Standard error in nats of each pair's difference under a budget in seconds: infinite if unknown, empty for other
    budgets.

    All seeds of an arm get the number of steps that its measured step time allows, so an error of that time does not
    appear in the scatter over seeds. A relative error ε of the step time (in its logarithm) changes the number of steps
    by that share, and the loss by about ε·|dL/d ln steps|. The slope is that of the arm's validation curve over its
    second half. With a decaying learning rate it is steeper than the gain of a longer schedule, so the error is
    overstated rather than understated.
    """
    if data.study.budget.seconds is None:
        return {}
    errors = {}
    for arm in data.study.arms:
        processes, relative = arm.step_time_processes or 0, math.inf  # standard error of ln step time
        if arm.step_time_error is not None and processes >= 2:
            # wider if few processes estimate it: times Student's quantile over the normal
            student = scipy.special.stdtrit(processes - 1, ALPHA / 2)
            relative = arm.step_time_error * float(student / scipy.special.ndtri(ALPHA / 2))
        # |dL/d ln steps| over the second half of the arm's runs
        slopes = []
        for _, (steps, losses) in lines_of(data, arm.name, "validation_loss"):
            half = int(np.searchsorted(steps, steps[-1] / 2))
            if 0 < steps[half] < steps[-1]:
                slopes.append(abs(float(losses[half] - losses[-1])) / math.log(float(steps[-1] / steps[half])))
        errors[arm.name] = relative * (fmean(slopes) if slopes else math.inf)
    found = {}
    for arm, base in data.study.pairs:
        shared = arm.calibration is not None and arm.calibration == base.calibration  # one step time: its error cancels
        found[arm.name, base.name] = 0.0 if shared else math.hypot(errors[arm.name], errors[base.name])
    return found
