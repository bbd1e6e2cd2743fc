"""Curves, averaged over seeds: what figures draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.reading.collected import Collected

Floats = NDArray[np.float64]
Line = tuple[Floats, Floats]


@dataclass(frozen=True)
class CurvePoint:
    """A mean over seeds at one x, with the seeds' range."""

    x: float
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Curve:
    """One line of a figure: `kind` says what it is of, `batch` is set for measurements of speed."""

    arm: str
    kind: str
    points: tuple[CurvePoint, ...]
    batch: int | None = None


def over_seeds(x: float, values: list[float]) -> CurvePoint:
    """The mean and range of one value per seed."""
    return CurvePoint(x, sum(values) / len(values), min(values), max(values), len(values))


def lines_of(data: Collected, arm: str, column: str, bins: int | None = None) -> Iterator[tuple[int, Line]]:
    """(seed, (steps, values)) of the finished runs of an arm; the baseline's may be as few as none."""
    logs = data.logs.get(arm)
    if logs is None or np.isnan(logs.columns[column]).all():
        return
    finished = data.runs.filter(arm=arm, status="finished")
    for digest, seed in finished.select("digest", "seed").iter_rows():
        logged = logs.of(digest)
        if logged is None:
            continue
        known = ~np.isnan(logged[column])
        if known.any():
            x, y = logged["step"][known], logged[column][known]
            yield seed, (x, y) if bins is None else _binned(x, y, bins)


def _binned(x: Floats, y: Floats, bins: int) -> Line:
    """Means over at most `bins` equal runs of neighbouring points. y may have a row for each of several runs."""
    starts = bin_starts(len(x), bins)
    sizes = np.diff(starts, append=len(x))
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts, axis=-1) / sizes


def bin_starts(n: int, bins: int) -> NDArray[np.int64]:
    """Where each of at most `bins` runs of n points begins; their sizes differ by one at most."""
    parts = min(bins, n)
    return np.arange(parts) * n // parts


def average(lines: list[Line]) -> tuple[CurvePoint, ...]:
    """Mean and range over seeds, at the points of the seed that has most of them."""
    if not lines:
        return ()
    grid = max((x for x, _ in lines), key=len)
    return _points(grid, np.stack([np.interp(grid, x, y) for x, y in lines]))


def _points(grid: Floats, values: Floats) -> tuple[CurvePoint, ...]:
    """values: a row for each seed."""
    columns = (grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    return tuple(
        CurvePoint(float(x), float(mean), float(low), float(high), len(values))
        for x, mean, low, high in zip(*columns, strict=True)
    )


def mean_curve(data: Collected, arm: str, column: str, bins: int | None = None) -> tuple[CurvePoint, ...]:
    """The average over the finished runs of an arm: all at once where they logged it at the same steps."""
    logs = data.logs.get(arm)
    if logs is not None and logs.steps is not None:
        finished = data.runs.filter(arm=arm, status="finished")["digest"]
        values = logs.matrix(column)[[logs.place[digest] for digest in finished if digest in logs.place]]
        known = ~np.isnan(values).all(axis=0)
        if not known.any():
            return ()
        x, y = logs.steps[known], values[:, known]
        if not np.isnan(y).any():
            return _points(*((x, y) if bins is None else _binned(x, y, bins)))
    return average([line for _, line in lines_of(data, arm, column, bins)])
