"""Tuning curves: the loss of each arm against every setting that was tuned."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.figures.base import Figure, short
from reports.figures.style import Look, blank, label
from reports.findings.shapes import StudySummary
from reports.findings.tunings import ArmTuning, is_number
from reports.wording import words
from reports.wording.tables import frame_table


def curves(summary: StudySummary, style: dict[str, Look]) -> tuple[Figure, ...]:
    """One figure per tuned setting (and size)."""
    sizes = dict.fromkeys(tuning.size for tuning in summary.tunings)
    return tuple(
        _curve([tuning for tuning in summary.tunings if tuning.size == size], path, style)
        for size in sizes
        for path in dict.fromkeys(p for tuning in summary.tunings if tuning.size == size for p in tuning.paths)
    )


def _curve(found: list[ArmTuning], path: str, style: dict[str, Look]) -> Figure:
    figure = blank(label(path), "validation loss (nats/token)")
    for tuning in found:
        _draw(figure, tuning, path, style[tuning.arm])
    values = [value for tuning in found for value, _ in tuning.envelope(path)]
    if values and all(is_number(value) and value > 0 for value in values):
        figure.update_xaxes(type="log")
    elif not all(is_number(value) for value in values):
        figure.update_xaxes(type="category")
    size, share = found[0].size, found[0].fraction
    several = " Each point is the best over the other settings." if len(found[0].paths) > 1 else ""
    return Figure(
        key="-".join(filter(None, ("tuning", path.replace(".", "-"), size))),
        title=f"Tuning {path}" + (f" at size {size}" if size else ""),
        note=f"Loss after tuning runs of {share:.0%} of the budget, on seeds of their own. "
        f"Filled: the value that the arm was compared with.{several}",
        alt="; ".join(f"{tuning.arm}: best at {dict(tuning.chosen)[path]}" for tuning in found),
        drawing=figure,
        table=frame_table(
            ("arm", *found[0].paths, "loss (nats/token)"),
            [
                (tuning.arm, *(str(value) for _, value in trial.settings), _loss(trial.loss))
                for tuning in found
                for trial in tuning.trials
            ],
        ),
    )


def _draw(figure: go.Figure, tuning: ArmTuning, path: str, look: Look) -> None:
    points = tuning.envelope(path)
    chosen = dict(tuning.chosen)[path]
    figure.add_scatter(
        x=[label(value) if isinstance(value, str) else value for value, _ in points],
        y=[short(loss) for _, loss in points],
        name=look.label,
        legendgroup=look.label,
        mode="lines+markers",
        line={"color": look.colour, "dash": look.dash, "width": 2.2},
        marker={
            "symbol": [look.symbol if value == chosen else f"{look.symbol}-open" for value, _ in points],
            "size": [13 if value == chosen else 8 for value, _ in points],
            "color": look.colour,
        },
        hovertemplate="%{y:.5g} at %{x}",
    )


def _loss(value: float | None) -> str:
    return "diverged" if value is None else words.signed(value, 4).lstrip("+")
