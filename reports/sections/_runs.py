"""Training losses as they were logged, run by run, thinned without losing an extreme, and clocks to draw them by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.store.documents import StudyArm
from reports.findings.curves import Floats, bin_starts
from reports.reading.collected import Collected, RunCurve

POINTS = 20_000
"""Points on a page, over all runs together."""
MOST, LEAST = 400, 20
"""Points of one run. With more runs than have room for so few, only the first ones of each arm are drawn raw."""
KNOTS = 100


@dataclass(frozen=True)
class RunLoss:
    """The logged losses of one run, steps counted from 1. `spikes` are those that were recorded as such.

    `diverged` is where a run that did so was last seen with a finite loss, None for others.
    """

    arm: str
    seed: int
    digest: str
    steps: Floats
    losses: Floats
    spikes: tuple[tuple[float, float], ...]
    diverged: tuple[float, float] | None


@dataclass(frozen=True)
class Clock:
    """The same places of an arm's training in several units: means over its runs, linear between steps."""

    arm: str
    steps: Floats
    tokens: Floats
    flops: Floats
    seconds: Floats

    def read(self, unit: str, steps: Any) -> Any:
        """Steps in one of `step`, `tokens`, `flops`, `seconds`."""
        return steps if unit == "step" else np.interp(steps, self.steps, getattr(self, unit))


def run_losses(data: Collected) -> tuple[RunLoss, ...]:
    """Losses of every run that has logged one, whatever its status."""
    runs = [run for run in data.runs.iter_rows(named=True) if (run["arm"], run["digest"]) in data.curve_of]
    points = max(LEAST, min(MOST, POINTS // max(1, len(runs))))
    return tuple(found for run in runs for found in _run_loss(data, run, points))


def _run_loss(data: Collected, run: Mapping[str, Any], points: int) -> Iterator[RunLoss]:
    logged = data.curve_of[run["arm"], run["digest"]]
    known = ~np.isnan(logged["loss"])
    steps, losses = logged["step"][known], logged["loss"][known]
    if not len(steps):
        return
    spikes = np.isin(steps, run["loss_spike_steps"] or [])
    kept = keep_extremes(losses, points)
    yield RunLoss(
        arm=run["arm"],
        seed=run["seed"],
        digest=run["digest"],
        steps=steps[kept],
        losses=losses[kept],
        spikes=tuple(zip(steps[spikes].tolist(), losses[spikes].tolist(), strict=True)),
        diverged=(steps[-1], losses[-1]) if run["status"] == "diverged" else None,
    )


def drawn_raw(runs: Sequence[RunLoss]) -> dict[str, list[RunLoss]]:
    """Runs whose raw losses are drawn, by arm: all, or the first of each arm if there are too many."""
    by_arm: dict[str, list[RunLoss]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    room = max(1, POINTS // LEAST // max(1, len(by_arm)))
    return {arm: own[:room] for arm, own in by_arm.items()}


def keep_extremes(values: Floats, points: int) -> NDArray[np.int64]:
    """Which of the values to draw: the lowest and the highest of each of `points` // 2 bins, the first and the last."""
    n = len(values)
    if n <= points:
        return np.arange(n)
    starts = bin_starts(n, points // 2)
    kept = {0, n - 1}
    for start, end in zip(starts, [*starts[1:], n], strict=True):
        part = values[start:end]
        kept |= {int(start + part.argmin()), int(start + part.argmax())}
    return np.array(sorted(kept))


def clocks(data: Collected) -> tuple[Clock, ...]:
    """One for each arm of which anything was logged."""
    found = (_clock(data, arm) for arm in data.study.arms)
    return tuple(clock for clock in found if clock is not None)


def _clock(data: Collected, arm: StudyArm) -> Clock | None:
    logs = [data.curve_of[key] for run in arm.runs if (key := (arm.name, run.digest)) in data.curve_of]
    if not logs:
        return None
    last = max(int(log["step"].max()) for log in logs)
    grid = np.unique(np.linspace(0, last, KNOTS + 1))
    longest = [log for log in logs if log["step"].max() == last]
    tokens, seconds = (
        np.mean([_read(log, column, grid) for log in longest], axis=0) for column in ("tokens", "seconds")
    )
    return Clock(arm.name, grid, tokens, tokens * arm.flops_per_token, seconds)


def _read(log: RunCurve, column: str, grid: Floats) -> Floats:
    return np.asarray(np.interp(grid, log["step"], log[column]))
