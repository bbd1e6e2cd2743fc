"""Settings of a search as axes: where each trial stands on one, and ticks that are read at a glance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablate.store.documents import Choices, TrialRecord
from reports.figures.style import label
from reports.searches.search_tables import setting_text
from reports.wording.arm_names import setting_name

MOST_TICKS = 5
LONGEST_TICK = 12
"""Characters of a tick's text."""

Tick = tuple[float, str]


@dataclass(frozen=True)
class SettingAxis:
    """A setting as an axis. Choices stand at whole numbers, values of a logarithmic range at their logarithms."""

    path: str
    title: str
    places: tuple[float, ...]
    """Places of the trials, in their order; NaN where a trial lacks the setting."""
    low: float
    high: float
    ticks: tuple[Tick, ...]

    def share(self, place: float) -> float:
        """Share of the way from the low end to the high one."""
        return (place - self.low) / (self.high - self.low or 1.0)


def resolving(scores: Sequence[float], way: str) -> tuple[float, float]:
    """Range of an axis of scores in which the best tenth takes a tenth or more: bad scores may lie outside, where
    zooming out finds them."""
    sign = 1.0 if way == "minimize" else -1.0
    ordered = sorted(sign * score for score in scores)
    best, tenth, worst = ordered[0], ordered[len(ordered) // 10], ordered[-1]
    far = min(worst, best + 10 * (tenth - best)) if tenth > best else worst
    room = 0.05 * (far - best or abs(best) or 1.0)
    low, high = best - room, far + room
    return (low, high) if sign > 0 else (-high, -low)


def score_axis(scores: Sequence[float], title: str) -> SettingAxis:
    """The scores of trials as one more axis."""
    low, high = min(scores), max(scores)
    return SettingAxis("", title, tuple(scores), low, high, tuple(_ticks(low, high, whole=False)))


def setting_axes(trials: Sequence[TrialRecord], paths: Sequence[str]) -> list[SettingAxis]:
    """An axis for each of these settings that some trial has."""
    known = [path for path in paths if any(path in trial.params for trial in trials)]
    titles = titles_of(known)
    return [_axis(path, titles[path], trials) for path in known]


def titles_of(paths: Sequence[str]) -> dict[str, str]:
    """`kv heads` for `block.mixer.kv_heads`; in full where two paths end alike."""
    tails = Counter(map(setting_name, paths))
    return {path: path if tails[setting_name(path)] > 1 else setting_name(path) for path in paths}


def _axis(path: str, title: str, trials: Sequence[TrialRecord]) -> SettingAxis:
    having = [trial for trial in trials if path in trial.params]
    ends = having[0].distributions[path].attributes
    texts = {trial.params[path]: setting_text(trial.settings.get(path, trial.params[path])) for trial in having}
    if isinstance(ends, Choices):
        choices = [choice for choice in ends.choices if choice in texts]
        at = {choice: float(place) for place, choice in enumerate(choices)}
        ticks = tuple((at[choice], label(texts[choice], LONGEST_TICK)) for choice in choices)
        places = tuple(at[trial.params[path]] if path in trial.params else math.nan for trial in trials)
        return SettingAxis(path, title, places, 0.0, max(1.0, len(choices) - 1.0), ticks)
    of_width = any(str(text).endswith("x") for text in texts.values())
    values = [trial.params.get(path) for trial in trials]
    numbers = [float(value) if isinstance(value, int | float) else math.nan for value in values]
    places = tuple(map(math.log10, numbers)) if ends.log else tuple(numbers)
    low, high = (math.log10(end) if ends.log else float(end) for end in (ends.low, ends.high))
    drawn = _log_ticks(low, high) if ends.log else _ticks(low, high, whole=isinstance(ends.low, int))
    return SettingAxis(path, f"{title} (× d_model)" if of_width else title, places, low, high, tuple(drawn))


def _log_ticks(low: float, high: float) -> Iterator[Tick]:
    """Powers of ten, with their doubles and halves where there is room."""
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in factors]
        inside = [value for value in values if low - 1e-9 <= math.log10(value) <= high + 1e-9]
        if len(inside) <= MOST_TICKS:
            break
    yield from ((math.log10(value), f"{value:g}") for value in inside)


def _ticks(low: float, high: float, whole: bool) -> Iterator[Tick]:
    """Round numbers: multiples of 1, 2 or 5 times a power of ten."""
    rough = max((high - low) / MOST_TICKS, 1e-12)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * (1 - 1e-9))
    step = max(1.0, step) if whole else step
    for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield place * step, f"{round(place * step, 12):g}"
