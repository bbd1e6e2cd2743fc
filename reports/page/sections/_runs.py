"""Logged training losses by run, thinned without losing an extreme, and clocks that convert their steps to
other units."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.judge.reading.collected import Collected, Floats, RunCurve, bin_starts

POINTS = 20_000
"""Most points on a page, over all runs."""
MOST, LEAST = 400, 20
"""Most and fewest points of one run. If LEAST points for each run exceed POINTS, only the first runs of each arm are
drawn raw."""
KNOTS = 100


@dataclass(frozen=True)
class RunLoss:
    """The logged losses of one run, steps counted from 1. `spikes` are (step, loss) of recorded loss spikes.

    `diverged` is (step, loss) of a diverged run's last finite loss, None for other runs.
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
    """Progress of an arm's training in several units: means over its runs, linear between steps."""

    arm: str
    steps: Floats
    tokens: Floats
    flops: Floats
    seconds: Floats

    def read(self, unit: str, steps: Any) -> Any:
        """Convert steps to `step`, `tokens`, `flops` or `seconds`."""
        return steps if unit == "step" else np.interp(steps, self.steps, getattr(self, unit))


def logging_runs(data: Collected) -> dict[str, set[str]]:
    """Digests of the runs that logged a loss, by arm, whatever their status."""
    found = {}
    for arm, logs in data.logs.items():
        known = np.logical_or.reduceat(~np.isnan(logs.columns["loss"]), logs.ends[:-1])
        found[arm] = set(compress(logs.digests, known))
    return {arm: own for arm, own in found.items() if own}


def run_losses(data: Collected, logging: Mapping[str, Collection[str]]) -> tuple[RunLoss, ...]:
    """Losses of the runs to draw: the first runs of each arm raw, others only if they have spikes or diverged."""
    points = max(LEAST, min(MOST, POINTS // max(1, sum(map(len, logging.values())))))
    room = dict.fromkeys(logging, _room(len(logging)))
    found = []
    runs = data.runs.select("arm", "seed", "digest", "status", "loss_spike_steps")
    for arm, seed, digest, status, spike_steps in runs.iter_rows():
        logged = data.logs[arm].of(digest) if digest in logging.get(arm, ()) else None
        if logged is None:
            continue
        room[arm] -= 1
        if room[arm] >= 0 or status == "diverged" or spike_steps:
            known = ~np.isnan(logged["loss"])
            steps, losses = logged["step"][known], logged["loss"][known]
            spikes = np.isin(steps, spike_steps or [])
            kept = keep_extremes(losses, points)
            found.append(
                RunLoss(
                    arm=arm,
                    seed=seed,
                    digest=digest,
                    steps=steps[kept],
                    losses=losses[kept],
                    spikes=tuple(zip(steps[spikes].tolist(), losses[spikes].tolist(), strict=True)),
                    diverged=(steps[-1], losses[-1]) if status == "diverged" else None,
                )
            )
    return tuple(found)


def drawn_raw(runs: Sequence[RunLoss]) -> dict[str, list[RunLoss]]:
    """Runs whose raw losses are drawn, by arm: all, or the first of each arm if there are too many."""
    by_arm: dict[str, list[RunLoss]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    return {arm: own[: _room(len(by_arm))] for arm, own in by_arm.items()}


def _room(arms: int) -> int:
    """Number of runs per arm that are drawn raw, for this number of arms."""
    return max(1, POINTS // LEAST // max(1, arms))


def keep_extremes(values: Floats, points: int) -> NDArray[np.int64]:
    """Indices to draw: the lowest and highest value of each of `points` // 2 bins, the first and the last."""
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
    """One clock for each arm with logs."""
    found = []
    for arm in (arm for arm in data.study.arms if arm.name in data.logs):
        logs = data.logs[arm.name]
        if logs.steps is not None:  # all runs logged the same steps
            means = {column: logs.matrix(column).mean(axis=0) for column in ("tokens", "seconds")}
            longest: list[RunCurve] = [{"step": logs.steps, **means}]
        else:
            each = [log for digest in logs.digests if (log := logs.of(digest)) is not None]
            last = max(log["step"].max() for log in each)
            longest = [log for log in each if log["step"].max() == last]  # a run may have stopped early
        grid = np.unique(np.linspace(0, int(longest[0]["step"].max()), KNOTS + 1))
        tokens, seconds = (
            np.mean([np.interp(grid, log["step"], log[column]) for log in longest], axis=0)
            for column in ("tokens", "seconds")
        )
        found.append(Clock(arm.name, grid, tokens, tokens * arm.flops_per_token, seconds))
    return tuple(found)
