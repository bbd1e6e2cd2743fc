"""Signal-to-noise ratio of a score: whether a task distinguishes the arms at all. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.judge.findings.study_summary import ArmSummary


def signal_to_noise(arms: Sequence[ArmSummary], task: str, metric: str) -> float | None:
    """(largest − smallest score of an arm) / √(mean of their squared standard errors); None for fewer than two scores
    with errors, or zero errors.

    After Heineman et al. 2025, arXiv:2508.13144, whose noise is over the last checkpoints of a run; here it is over
    items and seeds.
    """
    scores = [score for arm in arms for score in arm.scores if (score.task, score.metric) == (task, metric)]
    known = [(score.value, score.stderr) for score in scores if score.value is not None and score.stderr is not None]
    if len(known) < 2:
        return None
    values, errors = zip(*known, strict=True)
    noise = math.sqrt(sum(error**2 for error in errors) / len(errors))
    return (max(values) - min(values)) / noise if noise else None
