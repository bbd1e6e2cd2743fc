"""The trade-off: an arm's quality relative to the baseline, against its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import NO_DIFFERENCE, SAME_RATIO
from reports.page.figures.base import Figure
from reports.page.figures.drawing import ArmStyle
from reports.page.sections import Section
from reports.page.sections._against import Cost, LossDifferences, Quality, Ratios, cost_ratios, qualities
from reports.page.sections._plane import Plane
from reports.page.sections.costs import Costs
from reports.page.wording import arm_words, cost_words, finding_words
from reports.page.wording.arm_words import mark
from reports.page.wording.table import frame_table

FIRST = ("kv-", "training-time", "decode-", "flops-per-token")


@dataclass(frozen=True)
class TradeOff(Section):
    """`costs` of the arms as ratios to the baseline."""

    place: ClassVar[int] = 20

    costs: tuple[Cost, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        """None for a design, whose arms are not compared."""
        return None if data.study.design else cls(cost_ratios(data))

    @property
    def shown(self) -> tuple[Cost, ...]:
        """Costs in which arms may differ, those in which they do differ first, the most relevant of them first. None if
        no cost differs."""
        differing = [cost for cost in self.costs if not cost.is_same]
        if not any(cost.differs for cost in differing):
            return ()
        return tuple(sorted(differing, key=lambda cost: (not cost.differs, rank(cost))))

    @property
    def distinct(self) -> tuple[Cost, ...]:
        """One cost of each name, the most relevant first; for caches, that at the longest context."""
        found: dict[str, Cost] = {}
        for cost in sorted(self.costs, key=rank):
            found.setdefault(cost.name, cost)
        return tuple(found.values())

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One named point per arm; the dotted lines cross at the baseline."""
        found, costs = qualities(summary), self.shown
        if not costs or not found:
            return
        differing = {cost.name for cost in costs}
        same = list(dict.fromkeys(cost.name for cost in self.costs if cost.name not in differing))
        base, serving = summary.baseline, summary.section(Costs)
        arms = [base, *(arm.name for arm in summary.arms if any(arm.name in each.differences for each in found))]
        across, up = [ratios(cost, arms, base) for cost in costs], [differences(each, arms) for each in found]
        about = {arm.name: arm_words.of_arm(summary, arm) for arm in summary.arms}
        unjudged = {arm.name for arm in summary.arms if not is_judged(arm)}
        places = frozenset(place for place, arm in enumerate(arms) if arm in unjudged and arm != base)
        plane = Plane([style[arm] for arm in arms], across, up, unjudged=places, about=[about[arm] for arm in arms])
        absent = [arm.name for arm in summary.arms if arm.name not in arms]
        decodes = any(each.key.startswith("decode-") for each in costs)
        notes = (
            f"Differences from {base}, where the dotted lines cross.",
            plane.explained,
            f"No loss to compare, so not shown: {listed(absent)}." if absent else "",
            f"All arms have the same {listed(same)}." if same else "",
            cost_words.unmeasured(summary),
            cost_words.overhead(serving.overhead, len(summary.arms)) if serving and decodes else "",
        )
        yield Figure(
            key="trade-off",
            title=finding_words.trade_off(summary, costs[0].label, costs[0].ratios) + mark(summary),
            note=" ".join((*filter(None, notes), *summary.study.conventions)),
            alt="; ".join(f"{row[0]}: {row[1]} {up[0].name}" for row in plane.rows(arms) if row[0] != base),
            drawing=plane.drawing(),
            table=frame_table(("arm", *(axis.name for axis in (*up, *across))), plane.rows(arms)),
            switches=plane.switches,
            combined=plane.combined,
            wide=True,
        )


def rank(cost: Cost) -> int:
    """Sort key: the cache first, then times. FLOPs come last of the known ones, as the nearest to a time."""
    return next((place for place, key in enumerate(FIRST) if cost.key.startswith(key)), len(FIRST))


def is_judged(arm: ArmSummary) -> bool:
    """Whether the interval of an arm's difference may be read as a verdict: not in smoke runs, before its runs have
    ended, if its seeds all differ alike, or if some failed."""
    found = arm.comparison
    return arm.verdict not in ("no verdict", "cannot tell") and found is not None and not found.failures.any


def ratios(cost: Cost, arms: Sequence[str], base: str) -> Ratios:
    """Axis of a cost, the baseline first."""
    values = (SAME_RATIO, *(cost.ratios.get(arm) for arm in arms[1:]))
    return Ratios(f"{cost.label}, relative to {base}", values)


def differences(quality: Quality, arms: Sequence[str]) -> LossDifferences:
    """Axis of a quality, the baseline first."""
    return LossDifferences(
        quality.label, (NO_DIFFERENCE, *(quality.differences.get(arm) for arm in arms[1:])), quality.better
    )
