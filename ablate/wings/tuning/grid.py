"""Grid tuning: try all listed values, extend the grid if the best may lie beyond an edge, then refine between rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ablate.study.space import Categorical, Space
from ablate.study.tune_spec import TuneSpec
from ablate.wings.tuning.trials import (
    NUDGE,
    Batches,
    Legal,
    Losses,
    Settings,
    Stalls,
    Trial,
    Tuned,
    any_trains,
    best,
    trials_of,
)
from store.documents.tuning import RATE, is_number

if TYPE_CHECKING:
    from reports.judge.noise.curve import RateCurve

DISSENT = 0.25
"""A rate is clearly worse than the best if at most this share of the tuning seeds does better at it. With two seeds, an
equally good rate seems clearly worse with probability 1/4."""
PLAIN = 0.1
"""Smallest difference in loss, in nats, that counts between rates at which no run trains."""
LEAST_NOISE = 1e-6
"""Lower bound on the noise between seeds, in nats: if their losses are equal, the curve fit still needs a scale."""


def grid(spec: TuneSpec, space: Space, legal: Legal, stalls: Stalls) -> Batches:
    """Propose all listed values, then extensions of the grid and, for a rate alone, refinements; see `propose`."""
    axes = {path: axis.choice for path, axis in space.items() if isinstance(axis, Categorical)}
    batch = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    trials = trials_of(batch, (yield batch), stalls)
    added: dict[tuple[str, int], int] = {}
    while wider := _wider(axes, trials, added, spec.extend, legal):
        trials += trials_of(wider, (yield wider), stalls)
    is_rate = list(axes) == [RATE]
    for _ in range(spec.refine if is_rate else 0):
        curve = _curve(trials)
        rate = curve.next_rate() if curve else None
        if rate is None or not legal(closer := {RATE: float(f"{rate:.3g}")}):
            break
        trials += trials_of([closer], (yield [closer]), stalls)
    edges = tuple(path for path, values in axes.items() if _is_open(path, values, trials, legal))
    found = Tuned(tuple(trials), best(trials).settings, edges)
    if not any_trains(trials):
        return _untrained(found, batch[(len(batch) - 1) // 2])
    if not is_rate or math.isinf(best(trials).loss):
        return found
    curve = _curve(trials)
    if curve is None:
        return replace(found, reason=_why_not(found))
    return replace(found, chosen={RATE: curve.rate}, curve=curve.rates)


def _untrained(found: Tuned, middle: Settings) -> Tuned:
    """The outcome if no seed trained: losses of failed runs are noise, so take the middle of the list, which under
    `auto` is the arm's own rate, unless the best rate is plainly better."""
    if list(middle) != [RATE]:
        return replace(found, chosen=middle)
    tried = [trial.settings[RATE] for trial in found.trials]
    reason = f"no seed trained at any of the {len(tried)} rates tried, {min(tried):g} to {max(tried):g}"
    of_middle = next(trial.loss for trial in found.trials if trial.settings == middle)
    return replace(found, chosen=found.chosen if found.least < of_middle - PLAIN else middle, reason=reason)


def _curve(trials: Sequence[Trial]) -> RateCurve | None:
    """A curve fitted to the losses around the best rate; None with one tuning seed, which leaves the noise unknown.

    The noise is estimated at the best rate and those below: above, it is often several times as large.
    """
    from reports.judge.noise import Noise  # noqa: PLC0415 (scipy takes long, and a plan may tune nothing)
    from reports.judge.noise.curve import RateCurve, noise_between  # noqa: PLC0415 (as above)

    losses = rate_losses(trials)
    least = best(trials).settings[RATE]
    steady = [of for rate, of in losses.items() if rate <= least and all(map(math.isfinite, of))]
    if len(next(iter(steady), ())) < 2:
        return None
    noise = noise_between(steady) or Noise(LEAST_NOISE, 1)
    return RateCurve.fit(losses, Noise(max(noise.sd, LEAST_NOISE), noise.freedom))


def rate_losses(trials: Sequence[Trial]) -> dict[float, Losses]:
    """Losses by rate. A rate with a stalled seed counts as failed (infinite), unless the best rate has one too."""
    failed = not best(trials).stalled
    return {each.settings[RATE]: [math.inf] if each.stalled and failed else each.losses for each in trials}


def _why_not(found: Tuned) -> str:
    rate, rates = best(found.trials).settings[RATE], sorted(trial.settings[RATE] for trial in found.trials)
    if rate in (rates[0], rates[-1]):
        return f"not bracketed: the {'lowest' if rate == rates[0] else 'highest'} rate tried, {rate:g}, is the best"
    below = rates[rates.index(rate) - 1]
    if not all(map(math.isfinite, rate_losses(found.trials)[below])):
        return f"a seed diverged or stalled at {below:g}, the rate below the best, {rate:g}"
    return "one tuning seed cannot show the noise"


def _wider(
    axes: Mapping[str, Sequence[Any]],
    trials: Sequence[Trial],
    added: dict[tuple[str, int], int],
    extend: int,
    legal: Legal,
) -> list[Settings]:
    """Settings to add beyond the grid: the best ones, with one value moved a step beyond all tried. Counts the steps in
    `added`, by path and side."""
    found = []
    for path, values in axes.items():
        edge = _side(path, values, trials)
        unsure = _unsure_sides(values, trials) if list(axes) == [RATE] and not edge else []
        for side in [edge] if edge else unsure:
            settings = {**best(trials).settings, path: _beyond(_tried_values(path, values, trials), side)}
            if added.get((path, side), 0) < extend and legal(settings):
                added[path, side] = added.get((path, side), 0) + 1
                found.append(settings)
    return found


def _unsure_sides(values: Sequence[float], trials: Sequence[Trial]) -> list[int]:
    """Sides of the best rate (−1 lower, 1 higher) on which no tried rate is clearly worse: the best may lie inside the
    grid by chance, and a better one further out."""
    least = best(trials)
    if len(values) < 2 or math.isinf(least.loss):
        return []

    def is_worse(trial: Trial) -> bool:
        better = sum(loss < other - LEAST_NOISE for loss, other in zip(trial.losses, least.losses, strict=True))
        return trial.stalled > 0 or math.isinf(trial.loss) or better <= DISSENT * len(trial.losses)

    def beyond(side: int) -> list[Trial]:
        return [trial for trial in trials if side * trial.settings[RATE] > side * least.settings[RATE]]

    return [side for side in (-1, 1) if not any(map(is_worse, beyond(side)))]


def _is_open(path: str, values: Sequence[Any], trials: Sequence[Trial], legal: Legal) -> bool:
    """Whether the best value is at an edge of the tried values beyond which legal values exist; a warm-up of 0, for
    example, has none below."""
    side = _side(path, values, trials)
    if not side:
        return False
    chosen, tried = best(trials).settings, _tried_values(path, values, trials)
    beyond = _beyond(tried, side)
    near = chosen[path] + (side if isinstance(beyond, int) else NUDGE * (beyond - chosen[path]))
    return any(legal({**chosen, path: value}) for value in (beyond, near))


def _side(path: str, values: Sequence[Any], trials: Sequence[Trial]) -> int:
    """−1 or 1 if the best value is the smallest or largest number tried, else 0; see `_untrained_side`."""
    if len(values) < 2 or not all(is_number(value) for value in values):
        return 0
    if not any_trains(trials):
        return _untrained_side(trials) if path == RATE else 0
    if math.isinf(best(trials).loss):
        return 0
    tried = _tried_values(path, values, trials)
    chosen = best(trials).settings[path]
    return -1 if chosen == tried[0] else 1 if chosen == tried[-1] else 0


def _untrained_side(trials: Sequence[Trial]) -> int:
    """Where rates at which a seed trains may lie: 1 (higher) if the highest tried is plainly the best, 0 (nowhere) if
    the lowest is plainly worse than the best, else −1, as rates too high are why most runs stall or diverge."""
    rates = sorted({trial.settings[RATE] for trial in trials})
    least = [min(trial.loss for trial in trials if trial.settings[RATE] == rate) for rate in rates]
    if least[-1] < min(least[:-1], default=-math.inf) - PLAIN:
        return 1
    return 0 if min(least) + PLAIN < least[0] < math.inf else -1


def _tried_values(path: str, values: Sequence[Any], trials: Sequence[Trial]) -> list[Any]:
    return sorted({*values, *(trial.settings[path] for trial in trials)})


def _beyond(tried: Sequence[Any], side: int) -> Any:
    """The next value outwards, a step as large as the last: a factor if all values are positive, else a difference."""
    last, before = (tried[0], tried[1]) if side < 0 else (tried[-1], tried[-2])
    value = last * last / before if tried[0] > 0 else 2 * last - before
    whole = all(isinstance(number, int) for number in tried)
    return round(value) if whole else float(f"{value:.6g}")
