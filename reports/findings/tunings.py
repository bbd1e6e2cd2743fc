"""How each arm was tuned, as study.json tells it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ablate.store.documents import StudyDocument, StudyTuning


@dataclass(frozen=True)
class Trial:
    """Settings by path and the loss they reached; None when a seed diverged."""

    settings: tuple[tuple[str, Any], ...]
    loss: float | None

    def value(self, path: str) -> Any:
        return dict(self.settings)[path]


@dataclass(frozen=True)
class ArmTuning:
    """All that one arm tried, at one size of a ladder (`size` is None without one)."""

    arm: str
    size: str | None
    fraction: float
    trials: tuple[Trial, ...]
    chosen: tuple[tuple[str, Any], ...]
    edges: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.arm if self.size is None else f"{self.arm} at {self.size}"

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


def tunings(study: StudyDocument) -> tuple[ArmTuning, ...]:
    """Of the study, or of every size of its ladder."""
    if not study.ladder:
        return tuple(_tuning(each, None) for each in study.tuning)
    return tuple(_tuning(each, size.name) for size in study.ladder for each in size.tuning)


def _tuning(found: StudyTuning, size: str | None) -> ArmTuning:
    trials = tuple(Trial(tuple(trial.settings.items()), trial.loss) for trial in found.trials)
    return ArmTuning(found.arm, size, found.fraction, trials, tuple(found.chosen.items()), found.edges)


def edge_warnings(study: StudyDocument) -> Iterator[str]:
    """Arms whose best setting is the last one tried in a direction: they may be better than they look."""
    for tuning in tunings(study):
        for path in tuning.edges:
            value = json.dumps(dict(tuning.chosen)[path])
            yield (
                f"{tuning.name}: its best {path} ({value}) is at the edge of what was tried, so it may do better than"
                " it did here."
            )
        if all(trial.loss is None for trial in tuning.trials):
            yield f"{tuning.name}: every setting that was tried diverged."


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
