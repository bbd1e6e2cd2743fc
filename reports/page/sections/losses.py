"""Loss over training: by step, tokens, FLOPs and seconds, raw and averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, mean_curve
from reports.page.figures.base import (
    EARLY,
    Figure,
    Mark,
    Switch,
    SwitchOption,
    band,
    ends,
    late_range,
    leaves_out,
    mean_and_range,
    short,
    thinned,
)
from reports.page.figures.drawing import ArmStyle, Drawing, blank
from reports.page.sections import Section
from reports.page.sections._runs import Clock, RunLoss, clocks, drawn_raw, logging_runs, run_losses
from reports.page.wording.table import frame_table

BINS = {"train": 100, "train, coarse": 20}
"""Most points of a training-loss curve, by kind: the loss is averaged over equal ranges of steps."""

UNITS = {
    "step": "training step",
    "tokens": "training tokens",
    "flops": "training FLOPs",
    "seconds": "training time (s)",
}
RAW = ("raw", "spike", "diverged")
SHOWN = {
    "none": (),
    "averages of 5 %": ("train, coarse",),
    "averages of 1 %": ("train",),
    "averages of 5 %, and raw": ("train, coarse", *RAW),
    "raw": RAW,
}
"""Choices of training-loss curves to show, by averaging window (share of all steps). The first is the default."""
MOST_WITH_BANDS = 6
"""Most arms with bands: with more, bands hide the curves."""
MARKS = (("spike", "triangle-down-open"), ("diverged", "x"))


@dataclass(frozen=True)
class Losses(Section):
    """`curves` are means per arm, against step, of the training loss (kinds of `BINS`) and of the `validation` loss.

    Validation curves are measured on the validation part. The end of training is marked with the loss on the test part,
    which verdicts compare.
    """

    place: ClassVar[int] = 12

    curves: tuple[Curve, ...]
    runs: tuple[RunLoss, ...]
    """Runs that are drawn."""
    logged: int
    """Number of runs with a logged loss."""
    clocks: tuple[Clock, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        kinds = (*((kind, "loss", bins) for kind, bins in BINS.items()), ("validation", "validation_loss", None))
        curves = (
            Curve(arm.name, kind, mean_curve(data, arm.name, column, bins))
            for arm in data.study.arms
            for kind, column, bins in kinds
        )
        logging = logging_runs(data)
        return cls(tuple(curves), run_losses(data, logging), sum(map(len, logging.values())), clocks(data))

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """Validation and training loss, raw and averaged, with marks for spikes and divergence."""
        curves = [curve for curve in self.curves if curve.points]
        if curves or self.runs:
            yield _figure(curves, self, summary, style)


def _figure(curves: list[Curve], losses: Losses, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
    runs, clock = losses.runs, {clock.arm: clock for clock in losses.clocks}
    figure = blank(UNITS["step"], f"loss ({summary.unit})", 420)
    steps = [
        *_raw(figure, style, runs, alone=not curves),
        *_averages(figure, style, curves),
        *_compared(figure, style, curves, summary),
        *_marks(figure, style, runs),
    ]
    compared = [(arm.name, arm.loss.mean) for arm in summary.arms if arm.loss is not None]
    shown = _shown([kind for kind, _, _ in steps], curves, compared, runs)
    for trace, visible in zip(figure.data, shown.options[shown.chosen].traces["visible"], strict=True):
        trace["visible"] = visible
    figure.update_layout(shown.options[shown.chosen].layout)
    judged = [curve for curve in curves if curve.kind == "validation"]
    rows = [
        (curve.arm, *(f"{clock[curve.arm].read(unit, point.x):.5g}" for unit in UNITS), *mean_and_range(point))
        for curve in judged
        for point in thinned(curve.points)
    ]
    raw = [len(runs) for runs in drawn_raw(runs).values()]
    which = "every run" if sum(raw) == losses.logged else f"the first {max(raw)} runs of each arm"
    return Figure(
        key="losses",
        title="Validation loss over training" if curves else "Training loss so far",
        note="Every run as logged, downsampled with peaks kept. Means over seeds follow when runs have ended."
        if not curves
        else (
            "Means over seeds on the validation part; bands are ranges over seeds. Open marks at the end: loss on the "
            "test part, which verdicts compare. The training loss can be added: averaged over neighbouring steps (a "
            f"share of all) and seeds, or raw, {which} as logged, downsampled with peaks kept; then triangles are "
            "spikes, and crosses the last loss of runs that diverged. "
            f"{leaves_out(judged or curves, 'the initial drop')}"
        ),
        alt=ends(curves, "validation"),
        drawing=figure,
        table=frame_table(("arm", *UNITS.values(), "validation loss", "lowest seed", "highest seed"), rows),
        switches=(_against(clock, steps), shown),
        wide=True,
    )


Placed = tuple[str, str, list[float | None]]
"""A trace: its kind of curve, its arm, and its x in steps, with None for a gap."""


def _against(clocks: dict[str, Clock], traces: list[Placed]) -> Switch:
    """Switch of the x-axis unit for the same traces."""
    options = []
    for unit, title in UNITS.items():
        x = []
        for _, arm, steps in traces:
            read = clocks[arm].read(unit, np.array([np.nan if step is None else step for step in steps]))
            x.append([None if math.isnan(value) else short(value) for value in read])
        options.append(SwitchOption(title, {"x": x}, {"xaxis.title.text": title, "xaxis.autorange": True}))
    return Switch("against", "against", tuple(options))


def _shown(kinds: list[str], curves: Sequence[Curve], compared: Sequence[Mark], runs: Sequence[RunLoss]) -> Switch:
    """Switch of the curves of the training loss. The axis of every choice has room for all that it draws."""
    chosen = {kind for shown in SHOWN.values() for kind in shown}
    judged = [curve for curve in curves if curve.kind == "validation"] or curves
    options = []
    for text, shown in SHOWN.items():
        beside = [curve for curve in curves if curve.kind in shown]
        marks = [*compared, *(_raw_marks(runs) if "raw" in shown else ())]
        layout = {"yaxis.range": late_range(judged, beside, marks)} if curves else {}
        options.append(SwitchOption(text, {"visible": [kind in shown or kind not in chosen for kind in kinds]}, layout))
    # Before any run has ended there are no means, only raw losses.
    first = "none" if curves else "raw"
    return Switch("shown", "training loss", tuple(options), list(SHOWN).index(first))


def _raw_marks(runs: Sequence[RunLoss]) -> Iterator[Mark]:
    """Raw losses after the early part of training, spikes and last losses of diverged runs."""
    for run in runs:
        late = run.losses[run.steps >= EARLY * run.steps[-1]] if len(run.steps) else run.losses
        ends = [loss for _, loss in (*run.spikes, *([run.diverged] if run.diverged else []))]
        yield from ((run.arm, loss) for loss in (*late.tolist(), *ends) if math.isfinite(loss))


def _raw(figure: Drawing, style: Mapping[str, ArmStyle], runs: Sequence[RunLoss], alone: bool) -> Iterator[Placed]:
    """One trace per arm, with gaps between its runs; faint behind means, unless it is alone."""
    for arm, own in drawn_raw(runs).items():
        steps = [step for run in own for step in (*run.steps.tolist(), None)]
        figure.add_scatter(
            x=steps,
            y=[value for run in own for value in (*map(short, run.losses.tolist()), None)],
            name=style[arm].label,
            legendgroup=style[arm].label,
            showlegend=alone,
            mode="lines",
            line={"color": style[arm].colour, "width": 1.2 if alone else 0.6},
            opacity=0.8 if alone else 0.35,
            hoverinfo="skip",
            connectgaps=False,
            meta=[run.digest for run in own],
        )
        yield "raw", arm, steps


def _averages(figure: Drawing, style: Mapping[str, ArmStyle], curves: Sequence[Curve]) -> Iterator[Placed]:
    banded = len({curve.arm for curve in curves}) <= MOST_WITH_BANDS
    for curve in curves:
        before = len(figure.data)
        if curve.kind == "validation" and banded:
            band(figure, style[curve.arm], curve, 1.0, 0.14)
        thick, look = curve.kind == "validation", style[curve.arm]
        figure.add_scatter(
            x=[short(point.x) for point in curve.points],
            y=[short(point.mean) for point in curve.points],
            name=look.label,
            legendgroup=look.label,
            showlegend=thick,
            mode="lines+markers" if thick else "lines",
            marker={"symbol": look.symbol, "size": 6},
            line={"color": look.colour, "dash": look.dash, "width": 2.4 if thick else 0.9},
            opacity=1 if thick else 0.65,
            hovertemplate=f"{curve.kind} %{{y:.4f}} at %{{x:.4s}}",
        )
        yield from ((curve.kind, curve.arm, list(trace.x)) for trace in figure.data[before:])


def _compared(
    figure: Drawing, style: Mapping[str, ArmStyle], curves: Sequence[Curve], summary: StudySummary
) -> Iterator[Placed]:
    """A mark at each arm's last step: the mean loss on the test part."""
    last = {curve.arm: curve.points[-1].x for curve in curves if curve.kind == "validation"}
    for arm in summary.arms:
        if arm.name in last and arm.loss is not None:
            look = style[arm.name]
            figure.add_scatter(
                x=[short(last[arm.name])],
                y=[short(arm.loss.mean)],
                name=look.label,
                legendgroup=look.label,
                showlegend=False,
                mode="markers",
                marker={"symbol": f"{look.symbol}-open", "color": look.colour, "size": 11, "line": {"width": 1.8}},
                hovertemplate="test part %{y:.4f}",
            )
            yield "compared", arm.name, [last[arm.name]]


def _marks(figure: Drawing, style: Mapping[str, ArmStyle], runs: Sequence[RunLoss]) -> Iterator[Placed]:
    for arm in dict.fromkeys(run.arm for run in runs):
        own = [run for run in runs if run.arm == arm]
        diverged = [(run, *run.diverged) for run in own if run.diverged]
        spikes = [(run, *spike) for run in own for spike in run.spikes]
        for (kind, symbol), marks in zip(MARKS, (spikes, diverged), strict=True):
            if marks:
                look = style[arm]
                figure.add_scatter(
                    x=[step for _, step, _ in marks],
                    y=[short(loss) for _, _, loss in marks],
                    text=[f"seed {run.seed}" for run, _, _ in marks],
                    name=look.label,
                    legendgroup=look.label,
                    showlegend=False,
                    mode="markers",
                    marker={"symbol": symbol, "color": look.colour, "size": 10, "line": {"width": 1.5}},
                    hovertemplate=f"{kind}: %{{y:.4f}} at %{{x}}, %{{text}}",
                )
                yield kind, arm, [step for _, step, _ in marks]
