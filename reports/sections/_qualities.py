"""Qualities of arms, as differences from the baseline with the intervals that verdicts use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reports.findings.study_summary import StudySummary
from reports.scores.items import ItemDifference
from reports.statistics.estimates import Estimate
from reports.wording.tables import Better

PERPLEXITIES = ("byte_perplexity", "word_perplexity")
"""They say what bits per byte say, on a scale on which differences mean nothing."""


@dataclass(frozen=True)
class Quality:
    """`differences` are arm − baseline, paired by seed."""

    label: str
    better: Better
    differences: Mapping[str, Estimate]


def qualities(summary: StudySummary) -> tuple[Quality, ...]:
    """The loss, then scores of which it is known which way is better."""
    losses = {arm.name: arm.comparison.difference for arm in summary.arms if arm.comparison}
    known = {name: value for name, value in losses.items() if value is not None}
    loss = Quality(f"difference in loss ({summary.unit})", "low", known)
    return tuple(each for each in (loss, *_scores(summary)) if each.differences)


def _scores(summary: StudySummary) -> Iterator[Quality]:
    found: dict[tuple[str, str, bool], dict[str, Estimate]] = {}
    for arm in summary.arms:
        for item in arm.items:
            if item.difference is not None and item.higher_is_better is not None and is_drawn(item, summary):
                at = item.task, item.metric, item.higher_is_better
                value = Estimate(item.difference, item.low, item.high, None, item.by_seed)
                found.setdefault(at, {})[arm.name] = value
    for (task, metric, higher), differences in found.items():
        yield Quality(f"difference in {task}: {metric}", "high" if higher else "low", differences)


def is_drawn(item: ItemDifference, summary: StudySummary) -> bool:
    """Whether figures show it: tasks of groups are in tables."""
    return item.task not in summary.grouped and item.metric not in PERPLEXITIES
