"""Tuning of each arm: the loss against every tuned setting, and lines that carry the result to other studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from reports.judge.findings.noise import TunedChoice, study_noise
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.page.figures.base import Figure, short
from reports.page.figures.drawing import ArmStyle, Attributes, Drawing, blank, label
from reports.page.sections import Section
from reports.page.wording import training_words, words
from reports.page.wording.table import frame_table
from store.documents import StudyPass, StudyTuning
from store.documents.tuning import is_number, share

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ArmTuning:
    """One arm's tuning at one size of a ladder (`size` is None without a ladder), with the uncertainty of its
    choice."""

    size: str | None
    found: StudyTuning
    choice: TunedChoice | None

    @property
    def curve(self) -> Points:
        """Expected loss by learning rate, as points; empty if no curve was fitted."""
        return self.choice.curve if self.choice else ()

    @property
    def arm(self) -> str:
        return self.found.arm

    @property
    def name(self) -> str:
        return self.arm if self.size is None else f"{self.arm} at {self.size}"


@dataclass(frozen=True)
class Tuning(Section):
    """Tuning of the study, or of every rung of its ladder. `carried`: lines for a study file that reuse the result, if
    possible."""

    place: ClassVar[int] = 30
    title: ClassVar[str] = "How arms were tuned"
    template: ClassVar[str] = "tuning.html.j2"

    tunings: tuple[ArmTuning, ...]
    carried: str | None

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        found = tunings_of(data)
        return cls(found, training_words.carried_lines(data.study)) if found else None

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """Warnings of arms that may be better than they appear."""
        for each in tunings_of(data):
            yield from training_words.warnings(each.name, each.found)

    def lines(self) -> Iterator[str]:
        """The setting that each arm chose, with its uncertainty."""
        for each in self.tunings:
            yield training_words.taken(each.name, each.found, each.choice.rate if each.choice else None)

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One figure per tuned setting, pass and size."""
        for size in dict.fromkeys(each.size for each in self.tunings):
            found = [each for each in self.tunings if each.size == size]
            for path in dict.fromkeys(path for each in found for path in each.found.chosen):
                yield _figure(found, path, summary.unit, style, coarse=False)
                if any(each.found.coarse for each in found):
                    yield _figure(found, path, summary.unit, style, coarse=True)


def tunings_of(data: Collected) -> tuple[ArmTuning, ...]:
    """Tunings of the study, or of every rung of its ladder."""
    study, found = data.study, list[ArmTuning]()
    sizes: list[tuple[str | None, tuple[StudyTuning, ...]]] = [(rung.name, rung.tuning) for rung in study.ladder]
    for size, tuning in sizes or [(None, study.tuning)]:
        runs = data.runs if size is None else data.rungs.filter(rung=size)
        choices = study_noise(tuning, runs).choices if tuning else {}
        found += [ArmTuning(size, each, choices.get(each.arm)) for each in tuning]
    return tuple(found)


def _figure(found: Sequence[ArmTuning], path: str, unit: str, style: Mapping[str, ArmStyle], *, coarse: bool) -> Figure:
    shown = [
        (each, each.found.coarse[0] if coarse else each.found) for each in found if each.found.coarse or not coarse
    ]
    figure = blank(label(path), f"loss on tuning text ({unit})")
    for each, at in shown:
        _draw(figure, each, at, path, style[each.arm])
    values = [trial.settings[path] for _, at in shown for trial in at.trials]
    if all(is_number(value) and value > 0 for value in values):
        figure.update_xaxes(type="log")
    elif not all(is_number(value) for value in values):
        figure.update_xaxes(type="category")
    size, length = found[0].size, share(shown[0][1].fraction)
    title = f"Tuning {path}, first pass" if coarse else f"Tuning {path}"
    rows = []
    for each, at in shown:
        for trial in at.trials:
            for seed, loss in enumerate(trial.losses, start=1):
                text = "diverged" if loss is None else words.signed(loss, 4).lstrip("+")
                rows.append((each.arm, *map(str, trial.settings.values()), str(seed), text))
    note = "Lines: expected loss near the best rate. Filled: the chosen rate, with the 95 % interval of the best rate."
    if coarse:
        note = "These runs only narrow the range: the best learning rate depends on the length."
    elif any(len(each.found.chosen) > 1 for each, _ in shown):
        note = "Lines: best over the other settings. Filled: the chosen value."
    return Figure(
        key="-".join(filter(None, ("tuning", path.replace(".", "-"), size, "first" * coarse))),
        title=title + (f" at size {size}" if size else ""),
        note=f"Loss after tuning runs at {length}, on separate seeds (open points). {note}",
        alt="; ".join(f"{each.arm}: {each.found.chosen[path]}" for each, _ in shown),
        drawing=figure,
        table=frame_table(("arm", *found[0].found.chosen, "seed", f"loss ({unit})"), rows),
    )


def _draw(figure: Drawing, tuning: ArmTuning, at: StudyPass, path: str, look: ArmStyle) -> None:
    is_last = at is tuning.found
    points = [(trial.settings[path], loss) for trial in at.trials for loss in trial.losses if loss is not None]
    _scatter(figure, look, points, mode="markers", marker={"symbol": f"{look.symbol}-open", "size": 6}, opacity=0.7)
    line = tuning.curve if is_last and tuning.curve else envelope(at, path)
    _scatter(figure, look, line, mode="lines", line={"dash": look.dash, "width": 2.2}, named=True)
    if is_last:
        chosen: Any = tuning.found.chosen[path]
        least = min((loss for value, loss in line if not is_number(value) or value == chosen), default=None)
        height = least if least is not None and not tuning.curve else min((loss for _, loss in line), default=None)
        if height is not None:
            rate, bars = tuning.choice.rate if tuning.choice else None, None
            if rate is not None:
                ends = {"array": [rate.high - chosen], "arrayminus": [chosen - rate.low]}
                bars = {"type": "data", "symmetric": False, "thickness": 1.8, "width": 5, **ends}
            marker = {"symbol": look.symbol, "size": 12}
            _scatter(figure, look, [(chosen, height)], mode="markers", marker=marker, error_x=bars)


def envelope(at: StudyPass, path: str) -> list[tuple[Any, float]]:
    """Each value tried of one setting, with the lowest mean loss reached with it."""
    lowest: dict[Any, float] = {}
    for trial in at.trials:
        if trial.loss is not None:
            lowest[trial.settings[path]] = min(trial.loss, lowest.get(trial.settings[path], trial.loss))
    values = sorted(lowest) if all(is_number(value) for value in lowest) else list(lowest)
    return [(value, lowest[value]) for value in values]


def _scatter(
    figure: Drawing, look: ArmStyle, points: Sequence[tuple[Any, float]], *, named: bool = False, **how: Any
) -> None:
    marks: Attributes = {
        part: {**given, "color": look.colour} if part in ("marker", "line") else given for part, given in how.items()
    }
    figure.add_scatter(
        x=[label(value) if isinstance(value, str) else short(value) for value, _ in points],
        y=[short(loss) for _, loss in points],
        name=look.label,
        legendgroup=look.label,
        showlegend=named,
        hovertemplate="%{y:.5g} at %{x}",
        **marks,
    )
