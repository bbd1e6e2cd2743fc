"""How each arm was tuned: the loss against every setting that was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import plotly.graph_objects as go

from ablate.store.documents import StudyDocument, StudyTuning
from reports.figures.base import Figure, short
from reports.figures.style import ArmStyle, blank, label
from reports.findings.shapes import StudySummary
from reports.reading.collected import Collected
from reports.sections import Section
from reports.wording import words
from reports.wording.tables import frame_table


@dataclass(frozen=True)
class Trial:
    """Settings by path and the loss they reached; None when a seed diverged."""

    settings: tuple[tuple[str, Any], ...]
    loss: float | None

    def value(self, path: str) -> Any:
        return dict(self.settings)[path]


@dataclass(frozen=True)
class ArmTuning:
    """All that one arm tried, at one rung of a ladder (`rung` is None without one)."""

    arm: str
    rung: str | None
    fraction: float
    trials: tuple[Trial, ...]
    chosen: tuple[tuple[str, Any], ...]
    edges: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.arm if self.rung is None else f"{self.arm} at {self.rung}"

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.chosen)

    def envelope(self, path: str) -> tuple[tuple[Any, float], ...]:
        """Each value tried of one setting, with the lowest loss that was reached with it."""
        lowest: dict[Any, float] = {}
        for trial in self.trials:
            if trial.loss is not None:
                lowest[trial.value(path)] = min(trial.loss, lowest.get(trial.value(path), trial.loss))
        values = sorted(lowest) if all(is_number(value) for value in lowest) else list(lowest)
        return tuple((value, lowest[value]) for value in values)


@dataclass(frozen=True)
class Tuning(Section):
    """Of the study, or of every size of its ladder."""

    place: ClassVar[int] = 150

    tunings: tuple[ArmTuning, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        found = tunings_of(data.study)
        return cls(found) if found else None

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """Arms whose best setting is the last one tried in a direction: they may be better than they look."""
        for tuning in tunings_of(data.study):
            for path in tuning.edges:
                value = json.dumps(dict(tuning.chosen)[path])
                yield (
                    f"{tuning.name}: its best {path} ({value}) is at the edge of what was tried, so it may do better"
                    " than it did here."
                )
            if all(trial.loss is None for trial in tuning.trials):
                yield f"{tuning.name}: all settings tried diverged."

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One per tuned setting, and size."""
        for rung in dict.fromkeys(tuning.rung for tuning in self.tunings):
            found = [tuning for tuning in self.tunings if tuning.rung == rung]
            for path in dict.fromkeys(path for tuning in found for path in tuning.paths):
                yield _curve(found, path, style)


def tunings_of(study: StudyDocument) -> tuple[ArmTuning, ...]:
    """Of the study, or of every size of its ladder."""
    if not study.ladder:
        return tuple(_tuning(each, None) for each in study.tuning)
    return tuple(_tuning(each, rung.name) for rung in study.ladder for each in rung.tuning)


def _tuning(found: StudyTuning, rung: str | None) -> ArmTuning:
    trials = tuple(Trial(tuple(trial.settings.items()), trial.loss) for trial in found.trials)
    return ArmTuning(found.arm, rung, found.fraction, trials, tuple(found.chosen.items()), found.edges)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curve(found: list[ArmTuning], path: str, style: Mapping[str, ArmStyle]) -> Figure:
    figure = blank(label(path), "validation loss (nats/token)")
    for tuning in found:
        _draw(figure, tuning, path, style[tuning.arm])
    values = [value for tuning in found for value, _ in tuning.envelope(path)]
    if values and all(is_number(value) and value > 0 for value in values):
        figure.update_xaxes(type="log")
    elif not all(is_number(value) for value in values):
        figure.update_xaxes(type="category")
    rung, share = found[0].rung, found[0].fraction
    several = " Each point is the best over the other settings." if len(found[0].paths) > 1 else ""
    return Figure(
        key="-".join(filter(None, ("tuning", path.replace(".", "-"), rung))),
        title=f"Tuning {path}" + (f" at {rung}" if rung else ""),
        note=f"Loss after tuning runs of {share:.0%} of the budget, on separate seeds. "
        f"Filled: the value chosen for the comparison.{several}",
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


def _draw(figure: go.Figure, tuning: ArmTuning, path: str, look: ArmStyle) -> None:
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
