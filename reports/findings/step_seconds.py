"""Training time of a next step, from what the study's own runs took. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ablate.store.documents.study_arm import StudyArm
from ablate.store.documents.tuning import StudyTuning
from reports.findings.study_summary import StudySummary


def training_seconds(summary: StudySummary, seeds: int, factor: float = 1.0, *, tunes: bool = False) -> float | None:
    """Time of so many seeds of every arm at every rung, one run after another; None before any run has ended.

    factor: how much longer the runs are. tunes: whether tuning is done again, as it was.
    """
    pace = _seconds_per_flop(summary)
    if pace is None:
        return None
    study = summary.study
    rungs = [(rung.arms, rung.tuning) for rung in study.ladder] or [(study.arms, study.tuning)]
    flops = [seeds * arm.flops for arms, _ in rungs for arm in arms]
    if tunes:
        flops += [each for arms, tuning in rungs for each in _tuning_flops(arms, tuning)]
    return pace * factor * sum(flops)


def missing_seconds(summary: StudySummary) -> float | None:
    """Time of the runs that have not ended, each from its beginning."""
    pace = _seconds_per_flop(summary)
    return None if pace is None else pace * sum(len(arm.missing) * arm.budget.flops for arm in summary.arms)


def _seconds_per_flop(summary: StudySummary) -> float | None:
    done = summary.runs.filter(status="finished").drop_nulls(("train_seconds", "flops"))
    flops = float(done["flops"].sum())
    return float(done["train_seconds"].sum()) / flops if flops else None


def _tuning_flops(arms: Iterable[StudyArm], tuning: Iterable[StudyTuning]) -> Iterator[float]:
    """FLOPs of all runs of each pass."""
    sizes = {arm.name: arm.flops for arm in arms}
    for each in tuning:
        for part in (each, *each.coarse):
            yield part.fraction * sizes[each.arm] * sum(len(trial.losses) for trial in part.trials)
