"""Figures of accuracy by difficulty."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from reports.figures.base import NEUTRAL, Figure, band, ends, line, mean_and_range, optional, short, thinned
from reports.figures.style import Look, blank, label
from reports.findings.difficulty import AccuracyCurve
from reports.findings.shapes import StudySummary
from reports.wording import words
from reports.wording.tables import frame_table

COLUMNS = ("arm", "accuracy", "lowest seed", "highest seed", "standard error", "chance")


def curves(summary: StudySummary, style: dict[str, Look]) -> Iterator[Figure]:
    """One figure for each difficulty, a line per arm."""
    for name, found in itertools.groupby(summary.accuracies, key=lambda curve: curve.difficulty):
        yield _figure(name, [curve for curve in found if curve.rungs], style)


def over_training(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """Accuracy by step: such tasks are often learnt all at once."""
    found = summary.training_accuracy
    if not found:
        return None
    figure = blank("training step", "accuracy")
    for curve in found:
        band(figure, style[curve.arm], curve, 1.0, 0.16)
        line(figure, style[curve.arm], curve)
    figure.update_yaxes(range=[-0.03, 1.03])
    rows = [
        (curve.arm, words.whole(point.x), *mean_and_range(point)) for curve in found for point in thinned(curve.points)
    ]
    return Figure(
        key="training-accuracy",
        title="Accuracy over training",
        note="On what validates, all difficulties together. Bands: range over seeds.",
        alt=ends(found, "accuracy"),
        drawing=figure,
        table=frame_table(("arm", "step", *COLUMNS[1:4]), rows, 2),
    )


def _of_chance(chances: Mapping[float, float | None]) -> str:
    """How chance is drawn; nothing for a language, in which there is nothing to guess."""
    return "" if not chances else " Dotted: chance." if len(chances) > 1 else " Grey: chance."


def _figure(name: str, found: Sequence[AccuracyCurve], style: dict[str, Look]) -> Figure:
    figure = blank(label(name.replace("_", " ")), "accuracy")
    for curve in found:
        band(figure, style[curve.arm], curve.curve, 1.0, 0.16)
        line(figure, style[curve.arm], curve.curve)
    chances = {rung.accuracy.x: rung.chance for curve in found for rung in curve.rungs if rung.chance is not None}
    figure.add_scatter(
        x=sorted(chances),
        y=[short(chances[x]) for x in sorted(chances)],
        mode="lines" if len(chances) > 1 else "markers",  # a line through one point is nothing
        name="chance",
        line=NEUTRAL,
        marker={"symbol": "line-ew-open", "size": 24, "color": NEUTRAL["color"]},
        hovertemplate="chance: %{y:.3f}<extra></extra>",
    )
    values = sorted({rung.accuracy.x for curve in found for rung in curve.rungs})
    logarithmic = len(values) > 2 and values[0] > 0 and values[-1] / values[0] >= 8
    figure.update_xaxes(
        type="log" if logarithmic else "linear",
        tickmode="array",
        tickvals=values,
        ticktext=[words.whole(value) for value in values],
    )
    figure.update_yaxes(range=[-0.03, 1.03])
    reasons = dict.fromkeys(f" {curve.arm}: {reason}." for curve in found for reason in curve.reasons)
    return Figure(
        key=f"accuracy-{name}",
        title=f"Accuracy by {name.replace('_', ' ')}",
        note="The share of what is asked that the likeliest token gets right, on examples that are the same for all"
        f" arms and were not trained on. Bands: range over seeds.{_of_chance(chances)}{''.join(reasons)}",
        alt="; ".join(
            f"{curve.arm} at {words.whole(rung.accuracy.x)}: {rung.accuracy.mean:.3f}"
            for curve in found
            for rung in curve.rungs
        ),
        drawing=figure,
        table=frame_table(
            (COLUMNS[0], name, *COLUMNS[1:]),
            [
                (
                    curve.arm,
                    words.whole(rung.accuracy.x),
                    *mean_and_range(rung.accuracy),
                    optional(rung.stderr),
                    optional(rung.chance),
                )
                for curve in found
                for rung in curve.rungs
            ],
            2,
        ),
    )
