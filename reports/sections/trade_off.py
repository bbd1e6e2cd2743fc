"""The trade-off view: any measure against any other, with the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import plotly.graph_objects as go

from reports.figures.base import Attributes, Figure, Switch, SwitchOption, short
from reports.figures.style import ArmStyle, blank, label
from reports.findings.shapes import StudySummary
from reports.reading.collected import Collected
from reports.sections import Section
from reports.sections._measures import Measure, run_measures
from reports.statistics.estimates import Estimate, estimate
from reports.wording.failure_words import mark
from reports.wording.tables import Table, frame_table

X, Y = "speed", "loss"
"""What is drawn at first."""
Seeds = Mapping[str, tuple[int, ...]]
"""The finished seeds of each arm."""
FRONT = {"color": "#888", "width": 1.5, "dash": "dot"}


@dataclass(frozen=True)
class TradeOff(Section):
    """All measures that any run has, the loss first."""

    place: ClassVar[int] = 30

    measures: tuple[Measure, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        return cls(run_measures(data))

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """Arms by colour and symbol; open points are seeds, filled ones their means with intervals."""
        if len(self.measures) > 1:
            yield _figure(self.measures, summary, style)


def _figure(measures: tuple[Measure, ...], summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
    x = next((i for i, measure in enumerate(measures) if measure.key == X), 1)
    y = next((i for i, measure in enumerate(measures) if measure.key == Y), 0)
    arms = {arm.name: arm.seeds for arm in summary.arms if arm.seeds}
    options = {axis: tuple(_option(measure, axis, arms) for measure in measures) for axis in "xy"}
    return Figure(
        key="trade-off",
        title=f"Trade-offs{mark(summary)}",
        note=(
            "Choose what each axis shows. Open points are seeds, filled ones their means with 95 % intervals. Dotted: "
            "the Pareto front, arms that no other arm beats on both axes. Axis titles say which direction is better. "
            "Very wide intervals are cut off: zoom out to see their ends."
        ),
        alt="; ".join(_alt(arm, measures[x], measures[y]) for arm in arms),
        drawing=_drawing(options["x"][x], options["y"][y], [style[arm] for arm in arms]),
        table=_table(arms, measures),
        switches=(
            Switch("x", "horizontal", options["x"], x),
            Switch("y", "vertical", options["y"], y),
        ),
        front=True,
        wide=True,
    )


def _option(measure: Measure, axis: str, arms: Seeds) -> SwitchOption:
    """Of each arm the seeds' trace and the mean's, then the front's, which the page works out."""
    values: list[list[float | None]] = []
    bars: list[list[float]] = []
    for arm, seeds in arms.items():
        found, of = _estimate(measure, arm), measure.values.get(arm, {})
        by_seed = [short(of[seed]) if seed in of else None for seed in seeds]
        values += [by_seed, [None if found is None else short(found.mean)]]
        bars += [[], [short(found.half_width) if found is not None and found.half_width else 0]]
    return SwitchOption(
        measure.label,
        {axis: [*values, [None]], f"error_{axis}.array": [*bars, []]},
        {f"{axis}axis.title.text": title(measure, axis), f"{axis}axis.range": _range(values, bars)},
        measure.better,
    )


def _range(values: list[list[float | None]], bars: list[list[float]]) -> list[float]:
    """All points, and their intervals as far as these reach no farther beyond the points than those lie apart."""
    points = [value for trace in values for value in trace if value is not None]
    low, high = min(points), max(points)
    apart = high - low or abs(high) or 1.0
    means = [(mean[0], half[0]) for mean, half in zip(values[1::2], bars[1::2], strict=True) if mean[0] is not None]
    first = max(low - apart, min(mean - half for mean, half in means))
    last = min(high + apart, max(mean + half for mean, half in means))
    margin = 0.05 * (last - first) or 0.05 * apart
    return [short(min(low, first) - margin), short(max(high, last) + margin)]


def _estimate(measure: Measure, arm: str) -> Estimate | None:
    return estimate(list(measure.values.get(arm, {}).values()))


def title(measure: Measure, axis: str) -> str:
    """The label with an arrow to the better side."""
    arrow = {("x", "low"): "←", ("x", "high"): "→", ("y", "low"): "↓", ("y", "high"): "↑"}[axis, measure.better]
    return f"{label(measure.label, 80)} · better {arrow}"


def _drawing(x: SwitchOption, y: SwitchOption, looks: list[ArmStyle]) -> go.Figure:
    figure = blank(x.layout["xaxis.title.text"], y.layout["yaxis.title.text"], 520)
    figure.update_xaxes(range=x.layout["xaxis.range"])
    figure.update_yaxes(range=y.layout["yaxis.range"])
    for place, look in enumerate(looks):
        seeds, mean = 2 * place, 2 * place + 1
        bars = {
            f"error_{axis}": {"type": "data", "array": option.traces[f"error_{axis}.array"][mean], **_bars(look)}
            for axis, option in (("x", x), ("y", y))
        }
        figure.add_scatter(x=x.traces["x"][seeds], y=y.traces["y"][seeds], **_style(look, mean=False))
        figure.add_scatter(x=x.traces["x"][mean], y=y.traces["y"][mean], **bars, **_style(look, mean=True))
    front = _front(x, y)
    front_x, front_y = [place[0] for place in front], [place[1] for place in front]
    figure.add_scatter(x=front_x, y=front_y, mode="lines", line=FRONT, name="Pareto front", hoverinfo="skip")
    return figure


def _front(x: SwitchOption, y: SwitchOption) -> list[tuple[float, float]]:
    """The means that no other is at least as good as in both and better in one, from left to right."""
    means = [(a[0], b[0]) for a, b in list(zip(x.traces["x"], y.traces["y"], strict=True))[1:-1:2]]
    signs = [-1 if option.better == "high" else 1 for option in (x, y)]
    costs = {mean: (signs[0] * mean[0], signs[1] * mean[1]) for mean in means if None not in mean}
    return sorted(
        mean
        for mean, cost in costs.items()
        if not any(a <= cost[0] and b <= cost[1] and (a, b) != cost for a, b in costs.values())
    )


def _bars(look: ArmStyle) -> Attributes:
    return {"color": look.colour, "thickness": 1.8, "width": 5}


def _style(look: ArmStyle, mean: bool) -> Attributes:
    common = {"legendgroup": look.label, "mode": "markers", "name": look.label}
    if mean:
        hover = "mean: %{x:.5g}, %{y:.5g}"
        return common | {
            "marker": {"color": look.colour, "symbol": look.symbol, "size": 12},
            "hovertemplate": hover,
            "meta": "mean",
        }
    marker = {"color": look.colour, "symbol": f"{look.symbol}-open", "size": 7}
    hover = "seed: %{x:.5g}, %{y:.5g}"
    return common | {"marker": marker, "opacity": 0.75, "showlegend": False, "hovertemplate": hover}


def _alt(arm: str, x: Measure, y: Measure) -> str:
    return f"{arm}: {_number(x, arm)} {x.label}, {_number(y, arm)} {y.label}"


def _number(measure: Measure, arm: str) -> str:
    found = _estimate(measure, arm)
    return "–" if found is None else f"{found.mean:.5g}"


def _table(arms: Seeds, measures: tuple[Measure, ...]) -> Table:
    """The means."""
    rows = [(arm, *(_number(measure, arm) for measure in measures)) for arm in arms]
    return frame_table(("arm", *(measure.label for measure in measures)), rows)
