"""Runs that tuning takes from a grid and from known rates, and what either loses: simulated.

    PYTHONPATH=. python docs/benchmarks/tuning_cost.py [REPEATS]

The true loss of an arm is a parabola in log10 rate through its recorded tuning losses (`studies/results`). A run adds
noise of σ = 0.012 nats, and half as much that its seed adds to every arm. The best rate of short runs scatters by 0.1
decades around that of long ones.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablate.study.space import Space
from ablate.study.tune_spec import BELOW, FINE, TuneSpec, rates_alone, rates_around, rates_times
from ablate.wings.tuning.grid import rate_losses
from ablate.wings.tuning.trials import Tuned
from ablate.wings.tuning.tuning import propose
from reports.judge.noise import Noise
from reports.judge.noise.curve import RateCurve
from store.documents.tuning import RATE

SIGMA, SHIFT = 0.012, 0.1
CLOSE = 0.25
"""Losses above the best by more nats are not of the basin."""
REPEATS = int(sys.argv[1]) if len(sys.argv) > 1 else 10


class Basin(NamedTuple):
    """Loss above the minimum: curvature · (log10 rate − star)²."""

    star: float
    curvature: float

    def loss(self, rate: float, shift: float = 0.0) -> float:
        return self.curvature * (math.log10(rate) - self.star - shift) ** 2


class Cost(NamedTuple):
    """Runs of full length, nats lost, and the 95 % point of what the interval allows for."""

    runs: float
    lost: float
    room: float


def basins() -> Iterator[tuple[Basin, Basin]]:
    """Each recorded arm that was tuned around the scale's rate, and the baseline of its study."""
    for path in sorted(Path("studies/results").glob("*@cpu.json")):
        found = [_basin(arm["tuning"]) for arm in json.loads(path.read_text())["arms"]]
        if found and found[0]:
            yield from ((each, found[0]) for each in found if each and abs(each.star - math.log10(0.024)) < 1)


def _basin(trials: Sequence[Mapping[str, Any]]) -> Basin | None:
    """The least-squares parabola; None with fewer than three close losses, or where it has no minimum among them."""
    known = [each for each in trials if None not in each["losses"]]
    x = np.array([math.log10(each["rate"]) for each in known])
    y = np.array([np.mean(each["losses"]) for each in known])
    near = y < y.min(initial=math.inf) + CLOSE
    if near.sum() < 3:
        return None
    curvature, slope, _ = np.polyfit(x[near], y[near], 2)
    star = -slope / 2 / curvature
    is_inside = x[near].min() - 0.15 < star < x[near].max() + 0.15
    return Basin(float(star), float(curvature)) if curvature > 0.05 and is_inside else None


class Simulated:
    """One arm's tuning, with counted runs."""

    def __init__(self, basin: Basin, random: np.random.Generator, spec: TuneSpec) -> None:
        self.basin, self.random, self.spec, self.runs = basin, random, spec, 0.0
        self.of_seed, self.shift = random.normal(0, SIGMA / 2, spec.seeds), random.normal(0, SHIFT)

    def tuned(self, space: Space, fraction: float = 1.0) -> Tuned:
        """One pass, of short runs with one seed if `fraction` is below 1."""
        seeds = range(1 if fraction < 1 else self.spec.seeds)
        shift = self.shift if fraction < 1 else 0.0
        batches = propose(self.spec, space, lambda _: True)
        batch = next(batches)
        while True:
            self.runs += fraction * len(batch) * len(seeds)
            rates = [settings[RATE] for settings in batch]
            losses = [[self.basin.loss(rate, shift) + self._noise(seed) for seed in seeds] for rate in rates]
            try:
                batch = batches.send(losses)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def _noise(self, seed: int) -> float:
        return float(self.random.normal(0, SIGMA) + self.of_seed[seed])

    def cost(self, start: float | None) -> tuple[float, Cost]:
        """The rate found, and its cost. start: a known rate; None for a grid around the scale's."""
        if start is None:
            coarse = self.tuned(self.spec.space_around(0.024), 0.25)
            found = self.tuned(rates_around(coarse.chosen[RATE], BELOW if coarse.fails_above else FINE))
        else:
            found = self.tuned(rates_alone(rates_times(start, FINE)))
        rate = found.chosen[RATE]
        curve = RateCurve.fit(rate_losses(found.trials), Noise(SIGMA, 20))
        room = curve.penalty(rate, 2000) if curve else None
        high = float(np.interp(0.95, np.cumsum(room.weights), room.values)) if room else math.inf
        return rate, Cost(self.runs, self.basin.loss(rate), high)


def main() -> None:
    random, found = np.random.default_rng(0), dict[str, list[Cost]]()
    for basin, baseline in basins():
        for _ in range(REPEATS):
            first, cost = Simulated(basin, random, TuneSpec()).cost(None)
            found.setdefault("from a grid", []).append(cost)
            of_baseline, _ = Simulated(baseline, random, TuneSpec()).cost(None)
            for name, start in {"the arm's known rate": first, "the baseline's": of_baseline}.items():
                found.setdefault(f"from {name}", []).append(Simulated(basin, random, TuneSpec()).cost(start)[1])
            for refine in (1, 0):
                spec = TuneSpec(refine=refine)
                own = Simulated(basin, random, spec).cost(first)[1]
                found.setdefault(f"from the arm's known rate, refine: {refine}", []).append(own)
    print(f"{len(list(basins()))} arms, {REPEATS} repeats")
    for name, costs in found.items():
        runs, lost, room = np.array(costs).T
        print(f"{name}: {runs.mean():.1f} runs, lost {lost.mean():.4f} nats, room {np.median(room):.4f} nats")


if __name__ == "__main__":
    main()
