"""Grids by factor: the difference in loss against one factor, with a line for each combination of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import NO_DIFFERENCE, Estimate
from reports.page.figures.base import NEUTRAL, Figure, reach, short
from reports.page.figures.drawing import ArmStyle, blank, label, looks
from reports.page.sections import Section
from reports.page.wording import arm_words, words
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class Factor:
    """Axis of a grid: its path, and its values as text, in order."""

    path: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].replace("_", " ")


@dataclass(frozen=True)
class Factors(Section):
    """A grid's factors. `across`, the x-axis, has the most values; `others` name the lines."""

    place: ClassVar[int] = 10

    across: Factor
    others: tuple[Factor, ...]
    cells: Mapping[str, tuple[str, ...]]
    """Values of each arm by name: first that of `across`, then those of `others`."""

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        arms = [arm for arm in data.study.arms if arm.cell]
        if not arms:
            return None
        # arms make lines; of the other axes, the one with the most values is the x-axis
        factors = []
        for path in arms[0].cell:
            values = list({arm_words.value_of(arm.cell[path]): arm.cell[path] for arm in arms}.items())
            if all(isinstance(value, int | float) for _, value in values):
                values.sort(key=lambda each: each[1])  # type: ignore[arg-type,return-value]
            factors.append(Factor(path, tuple(text for text, _ in values)))
        factors.sort(key=lambda factor: (factor.path == "arm", -len(factor.values)))
        across, *others = factors
        cells = {arm.name: tuple(arm_words.value_of(arm.cell[each.path]) for each in factors) for arm in arms}
        return cls(across, tuple(others), cells)

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        differences = {arm.name: arm.comparison.difference for arm in summary.arms if arm.comparison}
        differences[summary.baseline] = NO_DIFFERENCE
        shown = [arm for arm in summary.arms if arm.name in self.cells]
        known = [(arm, value) for arm in shown if (value := differences.get(arm.name))]
        if len(known) > 1:
            yield self._figure(summary, known)

    def _figure(self, summary: StudySummary, known: Sequence[tuple[ArmSummary, Estimate]]) -> Figure:
        """Values are equally spaced, since powers of two are as common as linear steps."""
        lines: dict[tuple[str, ...], list[tuple[str, Estimate]]] = {}
        for arm, value in known:
            first, *others = self.cells[arm.name]
            lines.setdefault(tuple(others), []).append((first, value))
        named = {}  # `window 32 · post`: an arm's own name has no factor before it
        for rest in lines:
            pairs = zip(self.others, rest, strict=True)
            named[rest] = " · ".join(value if each.path == "arm" else f"{each.name} {value}" for each, value in pairs)
        style = looks(list(named.values()))
        figure = blank(label(self.across.path, 60), f"loss minus {label(summary.baseline)}’s ({summary.unit})", 380)
        for rest, points in lines.items():
            look = style[named[rest]]
            points.sort(key=lambda point: self.across.values.index(point[0]))
            figure.add_scatter(
                x=[label(x) for x, _ in points],
                y=[short(value.mean) for _, value in points],
                error_y={
                    "type": "data",
                    "array": [reach(value, 1) for _, value in points],
                    "arrayminus": [reach(value, 0) for _, value in points],
                    "thickness": 1.4,
                },
                mode="lines+markers",
                name=look.label,
                marker={"symbol": look.symbol, "size": 9},
                line={"color": look.colour, "dash": look.dash, "width": 2},
                hovertemplate="%{y:.4f} at %{x}",
            )
        figure.add_hline(y=0, line=NEUTRAL)
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=list(map(label, self.across.values)))
        figure.update_layout(showlegend=bool(self.others))
        rows = [(*self.cells[arm.name], words.signed(value.mean, 4), _ends(value)) for arm, value in known]
        names = [self.across.path, *(each.path for each in self.others)]
        by = listed([self.across.name, *(each.name for each in self.others)])
        return Figure(
            key="factors",
            title=f"Loss by {by}",
            note="Lower is better. Bars are the intervals of the result figure; values are equally spaced.",
            alt="; ".join(f"{' '.join(row[:-2])}: {row[-2]}" for row in rows),
            drawing=figure,
            table=frame_table((*names, f"difference ({summary.unit})", "95 %"), rows, len(names)),
            wide=True,
        )


def _ends(value: Estimate) -> str:
    ends = [words.signed(end, 4) for end in (value.low, value.high) if end is not None]
    return " to ".join(ends) or words.NONE
