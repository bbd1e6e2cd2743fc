"""All arms of a store's studies in one plane per group of comparable studies: gains and costs of changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import pstdev

from reports.judge.findings.study_summary import StudySummary
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import Estimate
from reports.page.figures.base import Figure
from reports.page.figures.drawing import CONFIG, label, looks
from reports.page.html.page import drawn
from reports.page.html.templating import FIGURES, render
from reports.page.sections._against import Against, LossDifferences, Ratios, all_one
from reports.page.sections._plane import WIDE, Plane
from reports.page.sections.trade_off import TradeOff
from reports.page.wording.table import frame_table
from store.documents.study import UNJUDGED

OWN = Path(__file__).parent / "templates"
SCRIPTS = (*FIGURES, "trade_offs.js")
COSTS = {
    "training-time": "training time per token",
    "kv": "KV cache at the longest context",
    "decode": "decoding time per token at the longest context",
    "peak-memory": "peak memory in training",
    "parameters": "total parameters",
    "flops-per-token": "FLOPs per token",
}
"""Axis titles for costs that studies measure differently, by the prefix of the cost's key."""


@dataclass(frozen=True)
class Studied:
    """A study with results, and the link to its report."""

    summary: StudySummary
    link: str

    @property
    def name(self) -> str:
        return f"{self.summary.study.name} at {self.summary.study.scale}"


@dataclass(frozen=True)
class _Arm:
    """One arm of a study, with its difference and costs."""

    studied: Studied
    name: str
    difference: Estimate
    costs: Mapping[str, Estimate]

    @property
    def title(self) -> str:
        return f"{self.studied.summary.study.name}: {self.name}"


@dataclass(frozen=True)
class Group:
    """Studies whose losses are of the same text at the same scale, with their figure."""

    title: str
    studies: str
    figure: Figure
    links: Sequence[str]
    """Link to the report of each point."""
    colours: Mapping[str, str] = field(default_factory=dict)
    """Colour of each study's points, by name; empty for a single study."""


def render_trade_offs(studies: Sequence[Studied], imported: Sequence[Group] = ()) -> str:
    """The page as HTML text, with imported models in groups of their own. Smoke runs are left out."""
    by: dict[tuple[str, ...], list[Studied]] = {}
    for each in studies:
        study = each.summary.study
        objective = study.objective.kind if study.objective else ""
        # properties that comparable studies share: scale, unit of the loss, objective and text
        alike = (study.scale, study.per, objective, *sorted({arm.data for arm in study.arms}))
        if study.scale not in UNJUDGED:
            by.setdefault(alike, []).append(each)
    groups = []
    for number, found in enumerate(by.values()):
        arms = [arm for studied in found for arm in _arms(studied)]
        shown = [studied for studied in found if any(arm.studied is studied for arm in arms)]
        if shown:
            groups.append(_group(number, shown, arms))
    groups += imported
    figures = {
        group.figure.key: {**drawn(group.figure, group.studies, "store"), "links": group.links} for group in groups
    }
    data = {"config": CONFIG, "figures": figures}
    return render("trade_offs.html.j2", SCRIPTS, data, OWN, groups=groups, home="index.html")


def _arms(studied: Studied) -> Iterator[_Arm]:
    section = studied.summary.section(TradeOff)
    for arm in studied.summary.arms:
        if section and arm.comparison and arm.comparison.difference:
            # the first cost of each kind, which is that at the longest context
            first = [(key, next((cost for cost in section.costs if cost.key.startswith(key)), None)) for key in COSTS]
            costs = {key: cost.ratios[arm.name] for key, cost in first if cost and arm.name in cost.ratios}
            yield _Arm(studied, arm.name, arm.comparison.difference, costs)


def _group(number: int, studies: Sequence[Studied], arms: Sequence[_Arm]) -> Group:
    first = studies[0].summary
    names = [each.name for each in studies]
    style = looks(names)
    up: list[Against] = [LossDifferences(f"difference in loss ({first.unit})", tuple(arm.difference for arm in arms))]
    ratios = {key: tuple(arm.costs.get(key) for arm in arms) for key in COSTS}
    axes = [Ratios(f"{COSTS[key]}, relative to the baseline", values) for key, values in ratios.items() if any(values)]
    across = sorted(axes, key=_last)
    # colour and symbol of the study, name of the arm
    named = [replace(style[arm.studied.name], label=label(arm.title, 40)) for arm in arms]
    plane = Plane(named, across, up, rivals=False, width=WIDE)
    columns = ("arm", *(axis.name for axis in (*up, *across)))
    data = ", ".join(sorted({each.data[:8] for each in first.study.arms}))
    figure = Figure(
        key=f"trade-offs-{number}",
        title=f"{len(arms)} arms of {len(studies)} stud{'y' if len(studies) == 1 else 'ies'} at {first.study.scale}",
        note="Each arm is compared with the baseline of its own study, so arms of different studies are not ranked. "
        "Bars are 95 % intervals; those of losses are corrected as the verdicts are. Click a point to open its study.",
        alt="; ".join(f"{row[0]}: {row[1]}" for row in plane.rows([arm.title for arm in arms])),
        drawing=plane.drawing(),
        table=frame_table(columns, plane.rows([arm.title for arm in arms])),
        switches=plane.switches,
        combined=plane.combined,
        wide=True,
    )
    colours = {name: style[name].colour for name in names} if len(names) > 1 else {}
    title = f"Scale {first.study.scale}, text {data}"
    return Group(title, listed(names), figure, [arm.studied.link for arm in arms], colours)


def _last(axis: Ratios) -> tuple[bool, bool, float]:
    """Sort key: axes that separate the arms most come first; then axes that fewer than half of the arms have; last,
    axes on which all arms are equal."""
    known = [value for value in axis.values if value]
    spread = pstdev(axis.place(value.mean) for value in known)
    return all_one(known), 2 * len(known) < len(axis.values), -spread
