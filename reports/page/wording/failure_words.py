"""Seeds that stalled or diverged, in words, for every place where a mean leaves them out."""

from __future__ import annotations

from statistics import fmean

from reports.judge.findings.comparison import Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.statistics.estimates import failure_rate_bound
from reports.page.wording import words
from reports.page.wording.input_words import undertrained


def failed(arm: ArmSummary) -> str:
    """`1 of 3 seeds stalled`, `1 stalled and 1 diverged of 3 seeds`; empty if none failed."""
    counts = ((len(arm.stalled), "stalled"), (len(arm.diverged), "diverged"))
    said = [(number, how) for number, how in counts if number]
    total = len(arm.seeds) + arm.failed
    if not said:
        return ""
    if len(said) == 2:
        return f"{' and '.join(f'{number} {how}' for number, how in said)} of {total} seeds"
    number, how = said[0]
    if number < total:
        return f"{number} of {total} seeds {how}"
    return f"all {total} seeds {how}" if total > 1 else f"its only seed {how}"


def failing(summary: StudySummary) -> str:
    """`post: 1 of 3 seeds stalled`, for every arm with both failed and finished seeds."""
    return "; ".join(f"{arm.name}: {failed(arm)}" for arm in summary.arms if arm.failed and arm.seeds)


def left_out(summary: StudySummary) -> str:
    """Addition to an answer: failed seeds, which no mean can include, and outliers, which all do."""
    found = failing(summary)
    out = f" Means leave out failed seeds ({found}); such an arm is never better." if found else ""
    base = summary.baseline_arm
    for arm, odd in ((arm, arm.outlier) for arm in summary.arms):
        if odd is None:
            continue
        ended = f"{abs(odd.above):.2g} nats {odd.side} its other seeds"
        out += f" Seed {odd.seed} of {arm.name} ended {ended}, and counts like them"
        if arm is not base and arm.loss and base.loss:
            others = fmean(loss for seed, loss in zip(arm.seeds, arm.loss.values, strict=True) if seed != odd.seed)
            difference = others - base.loss.mean
            out += f"; without it the difference is {words.signed(difference, words.decimals(difference))}"
        out += "."
    return out


def mark(summary: StudySummary) -> str:
    """Suffix of the title of a figure of losses: ` (undertrained; post: 1 of 3 seeds stalled)`."""
    notes = ["undertrained" if undertrained(summary.study) else "", failing(summary)]
    said = "; ".join(filter(None, notes))
    return f" ({said})" if said else ""


def where_it_trains(comparison: Comparison) -> str:
    """`where it trains`; empty if no seed failed."""
    return "where it trains" if comparison.failures.any else ""


def because(summary: StudySummary, arm: ArmSummary) -> str:
    """`1 of 3 seeds of post stalled`: for the arm, or for the baseline if the arm has no failed seed."""
    shaky = arm if arm.failed else summary.baseline_arm
    return failed(shaky).replace(" seeds", f" seeds of {shaky.name}")


def reliability(summary: StudySummary) -> str:
    """Bound on the failure rate if no seed failed."""
    fewest = min((len(arm.seeds) for arm in summary.arms if arm.seeds and not arm.failed), default=0)
    if not fewest:
        return ""
    bound = failure_rate_bound(fewest)
    rates = f"{words.seed_count(fewest)} without a failure cannot rule out a failure rate below {100 * bound:.0f} %"
    return f"Verdicts apply to runs that train: {rates}."
