"""Tuning over listed values: all of them, further out where the best may be at an edge, then between rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ablate.planning.trials import (
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
from ablate.store.documents.tuning import RATE, is_number
from ablate.study.space import Categorical, Space
from ablate.study.tune_spec import TuneSpec

if TYPE_CHECKING:
    from ablate.noise.curve import RateCurve

DISSENT = 0.25
"""Share of the tuning seeds that may do better at a rate which is plainly worse than the best: of equal rates, one in
four would seem so."""
PLAIN = 0.1
"""Nats below all others at which the highest rate is plainly the best, though no run trains."""
LEAST_NOISE = 1e-6
"""Nats by which losses of two seeds differ at least; where they are equal, the curve still needs a scale."""


def grid(spec: TuneSpec, space: Space, legal: Legal, stalls: Stalls) -> Batches:
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
    return _on_curve(found) if is_rate and not math.isinf(best(trials).loss) else found


def _untrained(found: Tuned, middle: Settings) -> Tuned:
    """The same with the middle of the list, an arm's own rate under `auto`: losses of runs that all fail are noise."""
    if list(middle) != [RATE]:
        return replace(found, chosen=middle)
    tried = [trial.settings[RATE] for trial in found.trials]
    reason = f"no seed trained at any of the {len(tried)} rates tried, {min(tried):g} to {max(tried):g}"
    return replace(found, chosen=middle, reason=reason)


def _curve(trials: Sequence[Trial]) -> RateCurve | None:
    """The curve about the best rate; with one tuning seed, whose noise is not known, there is none.

    The noise is that of the best rate and of those below it: above, it is often several times as large.
    """
    from ablate.noise.curve import RateCurve  # noqa: PLC0415 (scipy takes long, and a plan may tune nothing)
    from ablate.noise.scatter import Noise, scatter  # noqa: PLC0415

    losses = rate_losses(trials)
    least = best(trials).settings[RATE]
    steady = {rate: dict(enumerate(of)) for rate, of in losses.items() if rate <= least and all(map(math.isfinite, of))}
    if len(next(iter(steady.values()), ())) < 2:
        return None
    noise = scatter(steady).noise or Noise(LEAST_NOISE, 1)
    return RateCurve.fit(losses, Noise(max(noise.sd, LEAST_NOISE), noise.freedom))


def rate_losses(trials: Sequence[Trial]) -> dict[float, Losses]:
    """Losses by rate. A rate at which a seed stalled counts as failed, unless the best one is such a rate."""
    failed = not best(trials).stalled
    return {each.settings[RATE]: [math.inf] if each.stalled and failed else each.losses for each in trials}


def _on_curve(found: Tuned) -> Tuned:
    """The same with the tried rate of least expected loss."""
    curve = _curve(found.trials)
    if curve is None:
        return replace(found, reason=_why_not(found))
    return replace(found, chosen={RATE: curve.rate}, curve=curve.rates)


def _why_not(found: Tuned) -> str:
    rate, rates = best(found.trials).settings[RATE], sorted(trial.settings[RATE] for trial in found.trials)
    if rate in (rates[0], rates[-1]):
        return f"not bracketed: the {'lowest' if rate == rates[0] else 'highest'} rate tried, {rate:g}, is the best"
    below = rate_losses(found.trials)[rates[rates.index(rate) - 1]]
    if not all(map(math.isfinite, below)):
        return f"below the best rate, {rate:g}, a seed diverged or stalled"
    return "one tuning seed does not tell the noise"


def _wider(
    axes: Mapping[str, Sequence[Any]],
    trials: Sequence[Trial],
    added: dict[tuple[str, int], int],
    extend: int,
    legal: Legal,
) -> list[Settings]:
    """The best settings with each value to be followed moved one step beyond all that were tried; counts the steps."""
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
    """−1 and 1 for lower and higher rates than the best, where none that was tried is plainly worse: that the best lies
    between two others may be chance, and further out may be a better one."""
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
    """Whether the best value is at an edge that is not the end of what is legal: no warm-up is less than none."""
    side = _side(path, values, trials)
    if not side:
        return False
    chosen, tried = best(trials).settings, _tried_values(path, values, trials)
    beyond = _beyond(tried, side)
    near = chosen[path] + (side if isinstance(beyond, int) else NUDGE * (beyond - chosen[path]))
    return any(legal({**chosen, path: value}) for value in (beyond, near))


def _side(path: str, values: Sequence[Any], trials: Sequence[Trial]) -> int:
    """−1 or 1 where the best value is the smallest or largest number tried, else 0. Where no seed trains, rates are too
    low if the highest is plainly the best; else losses do not tell, but stalling and diverging come of high ones."""
    if len(values) < 2 or not all(is_number(value) for value in values):
        return 0
    if not any_trains(trials):
        return (1 if _still_falls(trials) else -1) if path == RATE else 0
    if math.isinf(best(trials).loss):
        return 0
    tried = _tried_values(path, values, trials)
    chosen = best(trials).settings[path]
    return -1 if chosen == tried[0] else 1 if chosen == tried[-1] else 0


def _still_falls(trials: Sequence[Trial]) -> bool:
    """Whether the highest rate has a loss plainly below those of all others."""
    highest = max(trial.settings[RATE] for trial in trials)
    at, below = ([each.loss for each in trials if (each.settings[RATE] == highest) is is_at] for is_at in (True, False))
    return min(at) < min(below, default=-math.inf) - PLAIN


def _tried_values(path: str, values: Sequence[Any], trials: Sequence[Trial]) -> list[Any]:
    return sorted({*values, *(trial.settings[path] for trial in trials)})


def _beyond(tried: Sequence[Any], side: int) -> Any:
    """One more step as large as the last: a factor where all are positive, else a difference."""
    last, before = (tried[0], tried[1]) if side < 0 else (tried[-1], tried[-2])
    value = last * last / before if tried[0] > 0 else 2 * last - before
    whole = all(isinstance(number, int) for number in tried)
    return round(value) if whole else float(f"{value:.6g}")
